// Package demo is the program machinist-demo: a whole Machinist with a sample fleet on this machine.
package demo
