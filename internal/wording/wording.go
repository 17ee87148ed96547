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

// most bounds how much of a message from elsewhere is repeated: the API server's response to a large object is long.
const most = 1024

// Brief returns the message, or its beginning if it is long.
func Brief(message string) string {
	if len(message) > most {
		return strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
