package main

import "testing"

func TestTheSpeedometerTellsASpeed(t *testing.T) {
	if speed := newSpeedometer().stop(); speed <= 0 {
		t.Errorf("%g pieces of work were done in a second", speed)
	}
}
