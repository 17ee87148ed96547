package apimodel

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Judge is a handler that checks each request and each answer of another handler.
type Judge struct {
	model *Model
	next  http.Handler

	mu       sync.Mutex
	problems map[string]int
	calls    map[string]int
}

// Judge returns a handler that checks the calls of another handler.
func (m *Model) Judge(next http.Handler) *Judge {
	return &Judge{model: m, next: next, problems: map[string]int{}, calls: map[string]int{}}
}

// Problems returns the problems, with the number of calls for each.
func (j *Judge) Problems() (all []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for problem, count := range j.problems {
		all = append(all, fmt.Sprintf("%s (%d times)", problem, count))
	}
	return all
}

// Calls returns the number of checked calls for each action.
func (j *Judge) Calls() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]int{}
	for action, count := range j.calls {
		out[action] = count
	}
	return out
}

// recorder copies an answer.
type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(data []byte) (int, error) {
	r.body.Write(data)
	return r.ResponseWriter.Write(data)
}

// ServeHTTP implements http.Handler.
func (j *Judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	rec := &recorder{ResponseWriter: w, status: http.StatusOK}
	action, problems := j.checkRequest(r, body)
	j.record(action, problems)
	j.next.ServeHTTP(rec, r) // It panics if the connection ends without an answer.
	j.record("", j.checkAnswer(r, action, body, rec))
}

func (j *Judge) record(action string, problems []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if action != "" {
		j.calls[action]++
	}
	for _, problem := range problems {
		j.problems[problem]++
	}
}

// serviceOf returns the service of a request.
func serviceOf(body []byte) string {
	if strings.Contains("&"+string(body), "&Version=2011-06-15") {
		return "sts"
	}
	return "ec2"
}

func (j *Judge) checkRequest(r *http.Request, body []byte) (string, []string) {
	target := r.Header.Get("X-Amz-Target")
	if target == "" {
		return j.model.query(serviceOf(body), body)
	}
	_, action, _ := strings.Cut(target, ".")
	o, known := j.model.services["sqs"].Operations[action]
	if !known {
		return action, []string{action + ": the action does not exist"}
	}
	return action, j.model.object("sqs", action, body, o.Input)
}

func (j *Judge) checkAnswer(r *http.Request, action string, body []byte, rec *recorder) []string {
	if r.Header.Get("X-Amz-Target") == "" {
		return j.model.answer(serviceOf(body), action, rec.status, rec.body.Bytes())
	}
	if rec.status >= http.StatusBadRequest {
		return nil
	}
	return j.model.object("sqs", action+"Response", rec.body.Bytes(), j.model.services["sqs"].Operations[action].Output)
}
