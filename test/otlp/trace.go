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

// Span contains the data that a tracing backend receives for one span.
type Span struct {
	// Service is the service name of the process that sent the span.
	Service             string
	Trace, ID, Parent   string
	Name                string
	Start, End          time.Time
	Attributes          map[string]string
	Failed              bool
	Links               []string // trace IDs
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

// Trace contains the spans of one trace.
type Trace []Span

// FindTrace returns the trace with the given ID, from the spans that have this ID.
func FindTrace(spans []Span, id string) (t Trace) {
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

// SpansNamed returns the spans with the given name.
func (t Trace) SpansNamed(name string) (found []Span) {
	for _, s := range t {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// Check returns the problems of a complete trace. The trace must have one root and unique IDs, and must contain every
// parent. No span may end before it begins.
func (t Trace) Check() (problems []string) {
	if n := len(t.Roots()); n != 1 {
		problems = append(problems, fmt.Sprintf("got %d root spans, want 1", n))
	}
	ids := map[string]bool{}
	for _, s := range t {
		if ids[s.ID] {
			problems = append(problems, fmt.Sprintf("another span has the same ID as the span %q", s.Name))
		}
		ids[s.ID] = true
	}
	for _, s := range t {
		if s.Parent != "" && !ids[s.Parent] {
			problems = append(problems, fmt.Sprintf("the parent of the span %q is missing", s.Name))
		}
		if s.End.Before(s.Start) {
			problems = append(problems, fmt.Sprintf("the span %q ends before it begins", s.Name))
		}
	}
	return problems
}

// CoveredFraction returns the fraction of the root's duration that the other spans cover, from 0 to 1.
func (t Trace) CoveredFraction() float64 {
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

// String returns the trace as an indented tree.
func (t Trace) String() string {
	var b strings.Builder
	var write func(parent, indent string)
	write = func(parent, indent string) {
		for _, s := range t {
			if s.Parent == parent {
				fmt.Fprintf(&b, "%s%s %s +%s %s", indent, s.Name, s.Start.UTC().Format("15:04:05.000"),
					s.End.Sub(s.Start).Round(time.Millisecond), s.Service)
				if s.Failed {
					fmt.Fprintf(&b, " failed: %s", s.StatusMessage)
				}
				b.WriteString("\n")
				write(s.ID, indent+"  ")
			}
		}
	}
	write("", "")
	return b.String()
}
