package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAnAnswerThatIsTooLongIsAnErrorAndNotTheEnd(t *testing.T) {
	const most = 1000
	for length, want := range map[int]error{0: nil, 1: nil, most - 1: nil, most: nil, most + 1: ErrAnswerTooLong,
		5 * most: ErrAnswerTooLong} {
		body := &boundedBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", length))), left: most}
		read, err := io.ReadAll(body)
		if !errors.Is(err, want) || len(read) != min(length, most) {
			t.Errorf("of %d bytes %d were read, with %v", length, len(read), err)
		}
	}
}

func TestRetryAfterIsReadInBothForms(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	header := func(value string) http.Header { return http.Header{"Retry-After": {value}} }
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-3": 0, "soon": 0, "99999999": 24 * time.Hour,
		at.Format(http.TimeFormat): 0,
	} {
		if got := RetryAfter(header(value)); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	byTheirClock := header(at.Add(time.Minute).Format(http.TimeFormat))
	byTheirClock.Set("Date", at.Format(http.TimeFormat))
	if got := RetryAfter(byTheirClock); got != time.Minute {
		t.Errorf("a minute after the answer's own date: %s", got)
	}
}
