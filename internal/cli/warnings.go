package cli

import (
	"context"

	"machinist.dev/machinist/internal/cli/printer"
)

// collectedWarnings is a context key for a *[]string, to which the API server's warnings are added.
type collectedWarnings struct{}

// collectWarnings returns a context that collects the warnings of its requests in the slice. Warnings of other requests
// are dropped.
func collectWarnings(ctx context.Context) (context.Context, *[]string) {
	warnings := new([]string)
	return context.WithValue(ctx, collectedWarnings{}, warnings), warnings
}

type warningCollector struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (warningCollector) HandleWarningHeaderWithContext(ctx context.Context, _ int, _ string, text string) {
	if warnings, ok := ctx.Value(collectedWarnings{}).(*[]string); ok {
		*warnings = append(*warnings, printer.Sanitize(text))
	}
}
