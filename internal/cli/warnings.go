package cli

import (
	"context"

	"machinist.dev/machinist/internal/cli/printer"
)

// collectedWarnings is the context key of the *[]string that collects the warnings of the API server.
type collectedWarnings struct{}

// collectWarnings returns a context and a slice that collects the warnings of the API server and its webhooks for
// requests with this context. Warnings for other requests are dropped.
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
