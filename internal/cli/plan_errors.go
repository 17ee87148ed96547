package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// invalidDocument is the API server's rejection of a document. It has one line for each invalid field.
type invalidDocument struct {
	lines []string
	err   error
}

// Error implements error.
func (r *invalidDocument) Error() string {
	return "the API server would reject the document:\n  " + strings.Join(r.lines, "\n  ")
}

// Unwrap returns the API server's error.
func (r *invalidDocument) Unwrap() error { return r.err }

// explain returns an error that lists the invalid fields with their values, if err contains them. The message of the
// API server is less useful: for an unknown field it repeats the whole object, and for a value of a wrong type it
// contains the type instead of the value.
func (d document) explain(err error) error {
	var rejection apierrors.APIStatus
	if !errors.As(err, &rejection) {
		return err
	}
	status := rejection.Status()
	var lines []string
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			lines = append(lines, d.explainCause(cause)...)
		}
	}
	if len(lines) == 0 {
		lines = d.unknownFields(status.Message)
	}
	if len(lines) == 0 {
		return err
	}
	return &invalidDocument{lines: lines, err: err}
}

// explainCause returns the lines for one cause of the API server's error.
func (d document) explainCause(cause metav1.StatusCause) []string {
	if lines := d.unknownFields(cause.Message); len(lines) > 0 {
		return lines
	}
	message := strings.Replace(cause.Message, ": "+cause.Field+" in body ", ": ", 1)
	message = ofPolicy.ReplaceAllString(message, "")
	switch {
	case cause.Field == "patch":
		// The message starts with the patched object as a quoted string.
		if quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(message, "Invalid value: ")); err == nil {
			message = strings.TrimPrefix(strings.TrimPrefix(message, "Invalid value: ")[len(quoted):], ": ")
		}
		return []string{shortened(message)}
	case cause.Type == metav1.CauseTypeTypeInvalid:
		if value, found := d.value(cause.Field); found {
			if expected := expectedType.FindString(message); expected != "" {
				message = "Invalid value: " + value + ": " + expected
			}
		}
	}
	if cause.Field == "" {
		return []string{shortened(message)}
	}
	return []string{cause.Field + ": " + shortened(message)}
}

var (
	expectedType = regexp.MustCompile(`must be of type \w+`)
	// ofPolicy is how the API server begins the message of an admission policy, which names the field itself.
	ofPolicy    = regexp.MustCompile(`^ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: `)
	strictError = regexp.MustCompile(`(unknown|duplicate) field "([^"]+)"`)
)

// unknownFields returns a line for each unknown or duplicate field that strict decoding found.
func (d document) unknownFields(message string) []string {
	_, list, found := strings.Cut(message, "strict decoding error: ")
	if !found {
		return nil
	}
	var lines []string
	for _, match := range strictError.FindAllStringSubmatch(list, -1) {
		problem := "unknown field"
		if match[1] == "duplicate" {
			problem = "duplicate field"
		}
		line := match[2] + ": "
		if value, found := d.value(match[2]); found {
			line += value + ": "
		}
		lines = append(lines, line+problem)
	}
	return lines
}

var pathSegment = regexp.MustCompile(`[^.\[\]]+`)

// value returns the value at a path such as "spec.template.spec.node.taints[0].key" of the document as JSON.
func (d document) value(path string) (string, bool) {
	var at any
	if json.Unmarshal(d.raw, &at) != nil {
		return "", false
	}
	for _, name := range pathSegment.FindAllString(path, -1) {
		switch in := at.(type) {
		case map[string]any:
			value, found := in[name]
			if !found {
				return "", false
			}
			at = value
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return "", false
			}
			at = in[i]
		default:
			return "", false
		}
	}
	value, err := json.Marshal(at)
	return shortened(string(value)), err == nil
}

// shortened removes the middle of a text that is too long for a line. The field is at the start of the text, and the
// problem at its end.
func shortened(text string) string {
	const head, tail = 100, 200
	if len(text) <= head+tail {
		return text
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s ... %s", text[:head], text[len(text)-tail:]), "")
}
