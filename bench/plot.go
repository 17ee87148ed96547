package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

type line struct {
	name, colour string
	dashed       bool
	value        func(*result) float64
}

// plot draws time and processor time over the number of machines as SVG with logarithmic axes. The dotted line shows
// proportional growth.
func plot(results []*result, g growth) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+
		"\n", 2*chartWidth, chartHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", 2*chartWidth, chartHeight)
	seconds := []line{
		{"create", "#0b6e99", false, func(r *result) float64 { return r.Create.Seconds }},
		{"delete", "#b23a48", false, func(r *result) float64 { return r.Delete.Seconds }},
		{"bare client, create", "#0b6e99", true, func(r *result) float64 { return r.Create.Limit.Seconds }},
		{"bare client, delete", "#b23a48", true, func(r *result) float64 { return r.Delete.Limit.Seconds }},
	}
	cpu := []line{
		{fmt.Sprintf("create, N^%.2f", g.CPU.Create), "#0b6e99", false, func(r *result) float64 {
			return r.Create.CPUSeconds
		}},
		{fmt.Sprintf("delete, N^%.2f", g.CPU.Delete), "#b23a48", false, func(r *result) float64 {
			return r.Delete.CPUSeconds
		}},
	}
	if len(results) > 0 && results[0].Roll != nil {
		seconds = append(seconds, line{"rolling update", "#6b8e23", false, func(r *result) float64 { return r.Roll.Seconds }})
		cpu = append(cpu, line{fmt.Sprintf("rolling update, N^%.2f", g.CPU.Roll), "#6b8e23", false, func(r *result) float64 {
			return r.Roll.CPUSeconds
		}})
	}
	chart(&b, 0, "Seconds", results, seconds)
	chart(&b, chartWidth, "CPU seconds of manager and provider", results, cpu)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

const (
	chartWidth, chartHeight   = 460, 380
	left, right, top, bottom  = 56, 16, 34, 44
	plotWidth, plotHeight     = chartWidth - left - right, chartHeight - top - bottom
	axisColour, proportionate = "#444444", "#999999"
)

// axis maps values to positions on a logarithmic scale.
type axis struct{ low, high float64 }

func (a axis) at(v float64) float64 {
	return (math.Log(v) - math.Log(a.low)) / (math.Log(a.high) - math.Log(a.low))
}

func axisOf(values []float64) axis {
	a := axis{math.Inf(1), 0}
	for _, v := range values {
		if v > 0 {
			a.low, a.high = math.Min(a.low, v), math.Max(a.high, v)
		}
	}
	if a.high == 0 {
		return axis{1, 10}
	}
	return axis{a.low / 1.3, a.high * 1.3}
}

// tickValues returns the values within the axis that are 1, 2 or 5 times a power of ten.
func (a axis) tickValues() (at []float64) {
	for power := math.Pow(10, math.Floor(math.Log10(a.low))); power <= a.high; power *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * power; v >= a.low && v <= a.high {
				at = append(at, v)
			}
		}
	}
	return at
}

func chart(b *bytes.Buffer, offset float64, title string, results []*result, lines []line) {
	var xs, ys []float64
	for _, r := range results {
		xs = append(xs, float64(r.Machines))
		for _, l := range lines {
			ys = append(ys, l.value(r))
		}
	}
	x, y := axisOf(xs), axisOf(ys)
	px := func(v float64) float64 { return offset + left + x.at(v)*plotWidth }
	py := func(v float64) float64 { return top + (1-y.at(v))*plotHeight }

	fmt.Fprintf(b, `<text x="%.1f" y="20" font-weight="bold" fill="%s">%s</text>`+"\n", offset+left, axisColour,
		html.EscapeString(title))
	for _, r := range results { // Mark the measured sizes.
		v := float64(r.Machines)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="%s">%d</text>`+"\n", px(v), top+plotHeight+18,
			axisColour, r.Machines)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#eeeeee"/>`+"\n", px(v), top, px(v), top+plotHeight)
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="%s">machines</text>`+"\n", offset+left+plotWidth/2,
		top+plotHeight+36, axisColour)
	for _, v := range y.tickValues() {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#eeeeee"/>`+"\n", offset+left, py(v),
			offset+left+plotWidth, py(v))
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end" fill="%s">%g</text>`+"\n", offset+left-6, py(v)+4,
			axisColour, v)
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%d" height="%d" fill="none" stroke="%s"/>`+"\n", offset+left, top,
		plotWidth, plotHeight, axisColour)
	for i, l := range lines {
		dash := ""
		if l.dashed {
			dash = ` stroke-dasharray="5 4"`
		}
		var points bytes.Buffer
		for _, r := range results {
			if v := l.value(r); v > 0 {
				fmt.Fprintf(&points, "%.1f,%.1f ", px(float64(r.Machines)), py(v))
				fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", px(float64(r.Machines)), py(v), l.colour)
			}
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.8"%s/>`+
			"\n", bytes.TrimSpace(points.Bytes()), l.colour, dash)
		ly := top + 18 + 16*i
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="1.8"%s/>`+"\n", offset+left+10,
			ly-4, offset+left+34, ly-4, l.colour, dash)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="%s">%s</text>`+"\n", offset+left+40, ly, axisColour,
			html.EscapeString(l.name))
	}
	proportion(b, results, lines, px, py)
}

// proportion draws a dotted reference line for costs that are proportional to the number of machines. The line begins
// at the first point of the first curve.
func proportion(b *bytes.Buffer, results []*result, lines []line, px, py func(float64) float64) {
	if len(results) < 2 || len(lines) == 0 || lines[0].value(results[0]) <= 0 {
		return
	}
	first, last := results[0], results[len(results)-1]
	from := lines[0].value(first)
	to := from * float64(last.Machines) / float64(first.Machines)
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="1 4"/>`+"\n",
		px(float64(first.Machines)), py(from), px(float64(last.Machines)), py(to), proportionate)
}
