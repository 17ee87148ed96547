package main

import "testing"

func TestSpeedometerReturnsSpeed(t *testing.T) {
	if speed := newSpeedometer().stop(); speed <= 0 {
		t.Errorf("got %g pieces of work per second, want more than 0", speed)
	}
}
