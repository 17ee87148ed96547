// Package demo is `machinist demo`: a whole Machinist with a sample fleet on this machine, to look at or to tour.
package demo
