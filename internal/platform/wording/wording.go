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

// most bounds how much of a message from elsewhere is repeated: the API server's response to a large object is long. It
// is the greatest length of the fields with such a message, in characters, each of at least a byte.
const most = 1024

const ellipsis = "…"

// Brief returns the message, or its beginning if it is long: 1024 bytes at most.
func Brief(message string) string {
	if len(message) > most {
		return strings.ToValidUTF8(message[:most-len(ellipsis)], "") + ellipsis
	}
	return message
}
