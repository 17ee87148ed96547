// Package wording builds pieces of the sentences that people read in messages.
package wording

import (
	"fmt"
	"strings"
)

// Count returns a number with its noun: "1 machine", "3 machines". The plural of the noun must be made with an s.
func Count[N int | int32](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// BriefBytes is how much of a message from elsewhere Brief keeps: the API server's answer about a large object is long.
const BriefBytes = 1024

const ellipsis = "…"

// Brief returns a message in valid UTF-8, or its beginning: at most BriefBytes bytes.
func Brief(message string) string { return Truncate(message, BriefBytes) }

// Truncate returns a message in valid UTF-8 of at most n bytes, which ends with an ellipsis if it was longer.
func Truncate(message string, n int) string {
	message = strings.ToValidUTF8(message, "�")
	if len(message) <= n {
		return message
	}
	return strings.ToValidUTF8(message[:n-len(ellipsis)], "") + ellipsis
}
