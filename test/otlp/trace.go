package otlp

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Span is one as a backend sees it.
type Span struct {
	// Service is that of the process that reported it.
	Service             string
	Trace, ID, Parent   string
	Name                string
	Start, End          time.Time
	Attributes          map[string]string
	Failed              bool
	Links               []string // traces
	StatusMessage, Kind string
}

func spansOf(request *collector.ExportTraceServiceRequest) (spans []Span) {
	for _, of := range request.GetResourceSpans() {
		service := attributesOf(of.GetResource().GetAttributes())["service.name"]
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span := Span{
					Service: service, Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()),
					Parent: hex.EncodeToString(s.GetParentSpanId()), Name: s.GetName(),
					Start:      time.Unix(0, int64(s.GetStartTimeUnixNano())),
					End:        time.Unix(0, int64(s.GetEndTimeUnixNano())),
					Attributes: attributesOf(s.GetAttributes()), StatusMessage: s.GetStatus().GetMessage(),
					Failed: s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR, Kind: s.GetKind().String(),
				}
				for _, link := range s.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(link.GetTraceId()))
				}
				spans = append(spans, span)
			}
		}
	}
	return spans
}

func attributesOf(all []*commonv1.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		switch v := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			out[a.GetKey()] = fmt.Sprint(v.IntValue)
		default:
			out[a.GetKey()] = a.GetValue().String()
		}
	}
	return out
}

// Trace is the spans of one trace.
type Trace []Span

// Of returns the trace of an ID.
func Of(spans []Span, id string) (t Trace) {
	for _, s := range spans {
		if s.Trace == id {
			t = append(t, s)
		}
	}
	slices.SortStableFunc(t, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return t
}

// Roots returns the spans without a parent.
func (t Trace) Roots() (roots []Span) {
	for _, s := range t {
		if s.Parent == "" {
			roots = append(roots, s)
		}
	}
	return roots
}

// Named returns the spans of a name.
func (t Trace) Named(name string) (found []Span) {
	for _, s := range t {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// Check returns what is wrong with a trace that is complete: it has one root, all IDs are different, every parent is
// there, and no span ends before it begins.
func (t Trace) Check() (wrong []string) {
	if n := len(t.Roots()); n != 1 {
		wrong = append(wrong, fmt.Sprintf("%d roots", n))
	}
	ids := map[string]bool{}
	for _, s := range t {
		if ids[s.ID] {
			wrong = append(wrong, fmt.Sprintf("two spans have the ID of %q", s.Name))
		}
		ids[s.ID] = true
	}
	for _, s := range t {
		if s.Parent != "" && !ids[s.Parent] {
			wrong = append(wrong, fmt.Sprintf("the parent of %q is missing", s.Name))
		}
		if s.End.Before(s.Start) {
			wrong = append(wrong, fmt.Sprintf("%q ends before it begins", s.Name))
		}
	}
	return wrong
}

// Covered returns the part of the root's time that its descendants cover, from 0 to 1.
func (t Trace) Covered() float64 {
	roots := t.Roots()
	if len(roots) != 1 || !roots[0].End.After(roots[0].Start) {
		return 0
	}
	root := roots[0]
	rest := slices.DeleteFunc(slices.Clone(t), func(s Span) bool { return s.ID == root.ID })
	slices.SortFunc(rest, func(a, b Span) int { return cmp.Or(a.Start.Compare(b.Start), a.End.Compare(b.End)) })
	var covered time.Duration
	at := root.Start
	for _, s := range rest {
		from, to := s.Start, s.End
		if from.Before(at) {
			from = at
		}
		if to.After(root.End) {
			to = root.End
		}
		if to.After(from) {
			covered += to.Sub(from)
			at = to
		}
	}
	return float64(covered) / float64(root.End.Sub(root.Start))
}

// String draws the trace, for people.
func (t Trace) String() string {
	var b strings.Builder
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for _, s := range t {
			if s.Parent == parent {
				fmt.Fprintf(&b, "%s%s %s +%s %s", indent, s.Name, s.Start.UTC().Format("15:04:05.000"),
					s.End.Sub(s.Start).Round(time.Millisecond), s.Service)
				if s.Failed {
					fmt.Fprintf(&b, " failed: %s", s.StatusMessage)
				}
				b.WriteString("\n")
				draw(s.ID, indent+"  ")
			}
		}
	}
	draw("", "")
	return b.String()
}
