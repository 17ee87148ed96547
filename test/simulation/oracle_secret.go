package simulation

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/test/apiserver"
)

// I10: secrets appear only in Secrets. Credentials and user data contain a marker word, which the search finds
// anywhere, even in base64. Bootstrap tokens have no marker word, so the search looks for the tokens themselves.

const canary = "kept-in-the-dark"

type secrets struct {
	world   *World
	needles [][]byte
	buffer  []byte
}

func newSecrets(w *World) *secrets {
	s := &secrets{world: w}
	s.add(canary)
	return s
}

func (s *secrets) clone(w *World) *secrets {
	return &secrets{world: w, needles: slices.Clip(s.needles)}
}

func (s *secrets) add(word string) {
	s.needles = append(s.needles, []byte(word))
	for shift := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte("xx"[:shift] + word))
		s.needles = append(s.needles, []byte(text[(8*shift+5)/6:8*(shift+len(word))/6]))
	}
}

func (s *secrets) checkText(where, text string) {
	s.buffer = append(s.buffer[:0], text...)
	s.checkBuffer(where)
}

func (s *secrets) checkBuffer(where string) {
	for _, needle := range s.needles {
		if bytes.Contains(s.buffer, needle) {
			s.world.oracle.breach("I10", "%s contains a secret: %q", where, s.buffer)
			return
		}
	}
}

// checkWrite checks a written object for known secrets, and remembers new secrets. It is called for each write.
func (s *secrets) checkWrite(server *apiserver.Server, c apiserver.Change) {
	if o, ok := c.New.(*corev1.Secret); ok {
		if secret := string(o.Data["token-secret"]); secret != "" && !slices.ContainsFunc(s.needles, func(n []byte) bool {
			return string(n) == secret
		}) {
			s.add(secret)
		}
		return
	}
	s.buffer = server.AppendText(s.buffer[:0], c.GVK, c.Key)
	s.checkBuffer(c.GVK.Kind + " " + c.Key.String())
}

func (s *secrets) logger() logr.Logger { return logr.New(&sink{secrets: s}) }

// GlobalLogger returns a logger for controller-runtime, which has only one for the whole program. A line with a secret
// panics, which ends the run that wrote it.
func GlobalLogger() logr.Logger { return logr.New(&sink{}) }

type sink struct {
	secrets *secrets
	values  []any
}

// Init implements logr.LogSink.
func (*sink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink for all levels.
func (*sink) Enabled(int) bool { return true }

// Info implements logr.LogSink.
func (l *sink) Info(_ int, message string, values ...any) { l.line(message, values) }

// Error implements logr.LogSink.
func (l *sink) Error(err error, message string, values ...any) {
	l.line(message, append([]any{"error", err}, values...))
}

// WithValues implements logr.LogSink.
func (l *sink) WithValues(values ...any) logr.LogSink {
	return &sink{l.secrets, append(slices.Clip(l.values), values...)}
}

// WithName implements logr.LogSink.
func (l *sink) WithName(string) logr.LogSink { return l }

func (l *sink) line(message string, values []any) {
	text := message
	for _, v := range append(slices.Clip(l.values), values...) {
		text += " " + shown(v)
	}
	if l.secrets != nil {
		l.secrets.checkText("a log line", text)
	} else if strings.Contains(text, canary) {
		panic("I10: a log line contains a secret: " + text)
	}
}

func shown(value any) string {
	switch x := value.(type) {
	case error:
		return x.Error()
	case fmt.Stringer:
		return x.String()
	}
	if text, err := json.Marshal(value); err == nil {
		return string(text)
	}
	return fmt.Sprint(value)
}
