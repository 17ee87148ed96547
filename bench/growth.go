package main

import (
	"fmt"
	"io"
	"math"
)

type scaled struct {
	Runs   []*result `json:"runs"`
	Growth growth    `json:"growth"`
}

// growth contains the exponents by which costs grow with the number of machines: 1 is proportional, 2 is quadratic.
type growth struct {
	// CPU contains the exponents of the processor time. EvenCPU contains the exponents of the processor time after a
	// correction for changes of the computer's speed.
	CPU     exponents `json:"cpu"`
	EvenCPU exponents `json:"even_cpu"`
	Time    exponents `json:"time"`
	// Allocated contains the exponents of the memory that the manager and the provider allocate. If this memory was not
	// measured, these exponents are 0.
	Allocated exponents `json:"allocated"`
}

// exponents contains one exponent for each phase, and one for all phases together. Roll is 0 without a rolling update.
type exponents struct {
	Create float64 `json:"create"`
	Roll   float64 `json:"roll,omitempty"`
	Delete float64 `json:"delete"`
	All    float64 `json:"all"`
}

func growthOf(results []*result) growth {
	of := func(value func(*phase) float64) exponents {
		over := func(phases func(*result) []*phase) float64 {
			var x, y []float64
			for _, r := range results {
				sum := 0.0
				for _, p := range phases(r) {
					if p != nil {
						sum += value(p)
					}
				}
				x, y = append(x, float64(r.Machines)), append(y, sum)
			}
			return exponent(x, y)
		}
		return exponents{
			Create: over(func(r *result) []*phase { return []*phase{&r.Create} }),
			Roll:   over(func(r *result) []*phase { return []*phase{r.Roll} }),
			Delete: over(func(r *result) []*phase { return []*phase{&r.Delete} }),
			All:    over(func(r *result) []*phase { return []*phase{&r.Create, r.Roll, &r.Delete} }),
		}
	}
	return growth{
		CPU:       of(func(p *phase) float64 { return p.CPUSeconds }),
		EvenCPU:   of(func(p *phase) float64 { return p.CPUSeconds * p.Speed }),
		Time:      of(func(p *phase) float64 { return p.Seconds }),
		Allocated: of(func(p *phase) float64 { return p.OwnAllocatedMiB }),
	}
}

// exponent fits y = a·x^b by least squares on the logarithms and returns b. If a value is not positive, or all values
// of x are equal, exponent returns 0.
func exponent(x, y []float64) float64 {
	var n, sx, sy, sxx, sxy float64
	for i := range x {
		if x[i] <= 0 || y[i] <= 0 {
			return 0
		}
		lx, ly := math.Log(x[i]), math.Log(y[i])
		n, sx, sy, sxx, sxy = n+1, sx+lx, sy+ly, sxx+lx*lx, sxy+lx*ly
	}
	spread := n*sxx - sx*sx
	if spread < 1e-9 {
		return 0
	}
	return (n*sxy - sx*sy) / spread
}

func (g growth) table(out io.Writer) {
	fmt.Fprintf(out, "\ngrowth with the number of machines N, as the exponent of N\n")
	for _, row := range []struct {
		name string
		e    exponents
	}{{"CPU seconds", g.CPU}, {"corrected CPU seconds", g.EvenCPU}, {"time", g.Time}, {"allocated", g.Allocated}} {
		if row.e == (exponents{}) {
			continue
		}
		fmt.Fprintf(out, "%s: create %.2f", row.name, row.e.Create)
		if row.e.Roll != 0 {
			fmt.Fprintf(out, ", roll %.2f", row.e.Roll)
		}
		fmt.Fprintf(out, ", delete %.2f, all %.2f\n", row.e.Delete, row.e.All)
	}
}
