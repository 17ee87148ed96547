package main

import "testing"

func TestTheSpeedometerWorksWithoutAllocating(t *testing.T) {
	if speed := newSpeedometer().stop(); speed <= 0 {
		t.Errorf("%g pieces of work were done in a second", speed)
	}
	if allocations := testing.AllocsPerRun(10, newPieceOfWork().do); allocations > 0 {
		t.Errorf("a piece of work allocates %g times: the collector would slow the measurement down", allocations)
	}
}
