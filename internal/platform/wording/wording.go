// Package wording builds parts of the messages that users read.
package wording

import (
	"fmt"
	"strings"
)

// Count returns a number with its noun, such as "1 machine" or "3 machines". It supports only nouns whose plural is
// formed with an s.
func Count[N int | int32](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// BriefBytes is the maximum length of the result of Brief. Some messages of other components are long, such as the
// API server's answer about a large object.
const BriefBytes = 1024

const ellipsis = "…"

// Brief returns the beginning of a message as valid UTF-8, with at most BriefBytes bytes.
func Brief(message string) string { return Truncate(message, BriefBytes) }

// Truncate returns a message in valid UTF-8 of at most n bytes. It ends with an ellipsis if the message was longer.
func Truncate(message string, n int) string {
	message = strings.ToValidUTF8(message, "�")
	if len(message) <= n {
		return message
	}
	return strings.ToValidUTF8(message[:n-len(ellipsis)], "") + ellipsis
}
