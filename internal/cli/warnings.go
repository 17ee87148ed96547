package cli

import (
	"context"

	"machinist.dev/machinist/internal/cli/printer"
)

// collectedWarnings is the key of a context's *[]string, which gets the warnings of the API server.
type collectedWarnings struct{}

// collectWarnings returns a context whose requests collect what the API server and its webhooks warn of. Warnings of
// other requests are dropped.
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
