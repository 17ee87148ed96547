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

// refused is what the API server finds wrong with a document, a line for each field.
type refused struct {
	lines []string
	err   error
}

func (r *refused) Error() string {
	return "the API server would refuse it:\n  " + strings.Join(r.lines, "\n  ")
}

func (r *refused) Unwrap() error { return r.err }

// explain returns an error that names fields, values and what is wrong with them, if that is what the API server's
// error says. Its own words repeat the whole object where a field is unknown, and the name of a type in place of the
// value where that has a wrong one.
func (d document) explain(err error) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err
	}
	status := answer.Status()
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
	return &refused{lines: lines, err: err}
}

func (d document) explainCause(cause metav1.StatusCause) []string {
	if lines := d.unknownFields(cause.Message); len(lines) > 0 {
		return lines
	}
	message := strings.Replace(cause.Message, ": "+cause.Field+" in body ", ": ", 1)
	switch {
	case cause.Field == "patch":
		// The patched object comes first.
		if quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(message, "Invalid value: ")); err == nil {
			message = strings.TrimPrefix(strings.TrimPrefix(message, "Invalid value: ")[len(quoted):], ": ")
		}
		return []string{shortened(message)}
	case cause.Type == metav1.CauseTypeTypeInvalid:
		if value, found := d.value(cause.Field); found {
			if wanted := typeWanted.FindString(message); wanted != "" {
				message = "Invalid value: " + value + ": " + wanted
			}
		}
	}
	if cause.Field == "" {
		return []string{shortened(message)}
	}
	return []string{cause.Field + ": " + shortened(message)}
}

var (
	typeWanted  = regexp.MustCompile(`must be of type \w+`)
	strictError = regexp.MustCompile(`(unknown|duplicate) field "([^"]+)"`)
)

// unknownFields returns a line for each field that strict decoding does not accept.
func (d document) unknownFields(message string) []string {
	_, list, found := strings.Cut(message, "strict decoding error: ")
	if !found {
		return nil
	}
	var lines []string
	for _, match := range strictError.FindAllStringSubmatch(list, -1) {
		what := "there is no such field"
		if match[1] == "duplicate" {
			what = "the field is there twice"
		}
		line := match[2] + ": "
		if value, found := d.value(match[2]); found {
			line += value + ": "
		}
		lines = append(lines, line+what)
	}
	return lines
}

var step = regexp.MustCompile(`[^.\[\]]+`)

// value returns what the document has at a path such as "spec.template.spec.node.taints[0].key", in JSON.
func (d document) value(path string) (string, bool) {
	var at any
	if json.Unmarshal(d.raw, &at) != nil {
		return "", false
	}
	for _, name := range step.FindAllString(path, -1) {
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

// shortened leaves out the middle of a text that is too long for a line: at its ends are the field and what is wrong.
func shortened(text string) string {
	const head, tail = 100, 200
	if len(text) <= head+tail {
		return text
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s ... %s", text[:head], text[len(text)-tail:]), "")
}
