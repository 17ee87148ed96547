package main

import (
	"fmt"
	"io"
	"math"
)

// scaled is what fleets of several sizes cost.
type scaled struct {
	Runs   []*result `json:"runs"`
	Growth growth    `json:"growth"`
}

// growth has the exponents by which cost grows with the number of machines: 1 is in proportion, 2 with the square.
type growth struct {
	CreateCPU  float64 `json:"create_cpu"`
	DeleteCPU  float64 `json:"delete_cpu"`
	RollCPU    float64 `json:"roll_cpu,omitempty"`
	TotalCPU   float64 `json:"total_cpu"`
	CreateTime float64 `json:"create_time"`
	DeleteTime float64 `json:"delete_time"`
	RollTime   float64 `json:"roll_time,omitempty"`
}

func growthOf(results []*result) growth {
	of := func(value func(*result) float64) float64 {
		var x, y []float64
		for _, r := range results {
			x, y = append(x, float64(r.Machines)), append(y, value(r))
		}
		return exponent(x, y)
	}
	g := growth{
		CreateCPU:  of(func(r *result) float64 { return r.Create.CPUSeconds }),
		DeleteCPU:  of(func(r *result) float64 { return r.Delete.CPUSeconds }),
		CreateTime: of(func(r *result) float64 { return r.Create.Seconds }),
		DeleteTime: of(func(r *result) float64 { return r.Delete.Seconds }),
		TotalCPU: of(func(r *result) float64 {
			sum := r.Create.CPUSeconds + r.Delete.CPUSeconds
			if r.Roll != nil {
				sum += r.Roll.CPUSeconds
			}
			return sum
		}),
	}
	if len(results) > 0 && results[0].Roll != nil {
		g.RollCPU = of(func(r *result) float64 { return r.Roll.CPUSeconds })
		g.RollTime = of(func(r *result) float64 { return r.Roll.Seconds })
	}
	return g
}

// exponent fits y = a·x^b by least squares of the logarithms and returns b, or 0 where there is no such fit.
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
	roll := func(exponent float64) string {
		if g.RollCPU == 0 {
			return ""
		}
		return fmt.Sprintf(", roll %.2f", exponent)
	}
	fmt.Fprintf(out, "CPU seconds: create %.2f%s, delete %.2f, all %.2f\n", g.CreateCPU, roll(g.RollCPU), g.DeleteCPU,
		g.TotalCPU)
	fmt.Fprintf(out, "time: create %.2f%s, delete %.2f\n", g.CreateTime, roll(g.RollTime), g.DeleteTime)
}
