package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestResponseBeyondTheLimitIsAnErrorAndNotTheEnd(t *testing.T) {
	const limit = 1000
	for length, want := range map[int]error{0: nil, 1: nil, limit - 1: nil, limit: nil, limit + 1: ErrAnswerTooLong,
		5 * limit: ErrAnswerTooLong} {
		body := &boundedBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", length))), left: limit}
		read, err := io.ReadAll(body)
		if !errors.Is(err, want) || len(read) != min(length, limit) {
			t.Errorf("read %d of %d bytes, with error %v", len(read), length, err)
		}
	}
}

func TestRetryAfterAcceptsSecondsAndDates(t *testing.T) {
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
	byServerClock := header(at.Add(time.Minute).Format(http.TimeFormat))
	byServerClock.Set("Date", at.Format(http.TimeFormat))
	if got := RetryAfter(byServerClock); got != time.Minute {
		t.Errorf("Retry-After is one minute after Date: got %s, want 1m", got)
	}
}
