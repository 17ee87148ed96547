// Package demo implements the program machinist-demo, which runs a complete Machinist with a sample fleet on this
// machine.
package demo
