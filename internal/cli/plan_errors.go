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

// explain lists the invalid fields of an error with their values. The API server's own message repeats the whole
// object, or names a type instead of the value. Other errors stay unchanged.
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

func (d document) explainCause(cause metav1.StatusCause) []string {
	if lines := d.unknownFields(cause.Message); len(lines) > 0 {
		return lines
	}
	message := strings.Replace(cause.Message, ": "+cause.Field+" in body ", ": ", 1)
	message = ofPolicy.ReplaceAllString(message, "")
	switch {
	case cause.Field == "patch":
		// The message starts with the whole object in quotes.
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
	// ofPolicy matches the prefix of an admission policy's message. The rest of the message names the field.
	ofPolicy    = regexp.MustCompile(`^ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: `)
	strictError = regexp.MustCompile(`(unknown|duplicate) field "([^"]+)"`)
)

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

// value returns a field of the document as JSON. A path is for example "spec.template.spec.node.taints[0].key".
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

// shortened removes the middle of a long error message. Such a message starts with the name of the field, and ends with
// the problem.
func shortened(text string) string {
	const head, tail = 100, 200
	if len(text) <= head+tail {
		return text
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s ... %s", text[:head], text[len(text)-tail:]), "")
}
