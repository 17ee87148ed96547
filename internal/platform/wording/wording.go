// Package wording builds parts of the messages that users read.
package wording

import (
	"fmt"
	"strings"
)

// Count returns a number with its noun, such as "1 machine" or "3 machines". The plural of the noun must end with an
// additional s.
func Count[N int | int32](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// BriefBytes is the maximum length of the result of Shorten. Some messages of other components are very long.
const BriefBytes = 1024

const ellipsis = "…"

// Shorten returns at most the first BriefBytes bytes of a message, as valid UTF-8.
func Shorten(message string) string { return Truncate(message, BriefBytes) }

// Truncate returns at most n bytes of a message, as valid UTF-8. A shortened message ends with an ellipsis.
func Truncate(message string, n int) string {
	message = strings.ToValidUTF8(message, "�")
	if len(message) <= n {
		return message
	}
	return strings.ToValidUTF8(message[:n-len(ellipsis)], "") + ellipsis
}
