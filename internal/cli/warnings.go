package cli

import (
	"context"

	"machinist.dev/machinist/internal/cli/printer"
)

// collectedWarnings is a context key. Its value is a *[]string to which the warnings of the API server are added.
type collectedWarnings struct{}

// collectWarnings returns a context and a slice. If a request has this context, the warnings in its response are added
// to the slice. The warnings come from the API server and its webhooks. Warnings in responses to other requests are
// dropped.
func collectWarnings(ctx context.Context) (context.Context, *[]string) {
	warnings := new([]string)
	return context.WithValue(ctx, collectedWarnings{}, warnings), warnings
}

// warningCollector implements rest.WarningHandlerWithContext.
type warningCollector struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (warningCollector) HandleWarningHeaderWithContext(ctx context.Context, _ int, _ string, text string) {
	if warnings, ok := ctx.Value(collectedWarnings{}).(*[]string); ok {
		*warnings = append(*warnings, printer.Clean(text))
	}
}
