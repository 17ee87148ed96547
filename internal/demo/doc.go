// Package demo is `machinist demo`: a whole Machinist with a sample fleet on this machine, to check or to tour.
package demo
