package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// timeout is a field or a flag whose value is a duration.
type timeout struct {
	name, defaultValue, meaning string
	// owners contains the kinds or programs that have the field or flag.
	owners []string
}

var (
	apiKind  = regexp.MustCompile(`^## (\w+)$`)
	apiField = regexp.MustCompile("^\\| `(spec\\.\\S+)` \\| ([^|]+) \\| (.*) \\|$")
	// defaultSentence matches the default in the description of a field.
	defaultSentence = regexp.MustCompile(" ?(?:Defaults to|Default:) `?([^`. ]+)`?\\.")
	// fieldName matches the name of the field at the beginning of its description.
	fieldName = regexp.MustCompile(`^[a-z]\w* (?:is|are) `)
)

// timeoutsDocument returns the document about all fields and flags whose values are durations. fields is the reference
// of the API.
func timeoutsDocument(fields string, flags []section) ([]byte, error) {
	ofFields, ofFlags := timeoutFields(fields), timeoutFlags(flags)
	if len(ofFields) == 0 || len(ofFlags) == 0 {
		return nil, errors.New("found no fields or no flags with a duration")
	}
	var out bytes.Buffer
	out.WriteString("# Timeouts and periods\n\n")
	out.WriteString("Generated from the [API](api.md) and the [flags](flags.md) by `hack/generate.sh`. ")
	out.WriteString("If a cluster was unreachable, the timeouts of machines that depend on this cluster begin again after the outage.\n")
	renderTimeouts(&out, "Fields", "Field", "Kind", ofFields)
	renderTimeouts(&out, "Flags", "Flag", "Program", ofFlags)
	return out.Bytes(), nil
}

func renderTimeouts(out *bytes.Buffer, heading, name, of string, rows []timeout) {
	fmt.Fprintf(out, "\n## %s\n\n| %s | %s | Default | Meaning |\n| --- | --- | --- | --- |\n", heading, name, of)
	for _, t := range rows {
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", t.name, strings.Join(t.owners, ", "), t.defaultValue, t.meaning)
	}
}

// timeoutFields returns the fields in the tables of the reference whose values are durations or numbers of seconds.
func timeoutFields(reference string) (all []timeout) {
	kind := ""
	for line := range strings.Lines(reference) {
		line = strings.TrimSuffix(line, "\n")
		if found := apiKind.FindStringSubmatch(line); found != nil {
			kind = found[1]
		}
		found := apiField.FindStringSubmatch(line)
		if found == nil || found[2] != "duration" && !strings.HasSuffix(found[1], "Seconds") {
			continue
		}
		defaultValue, meaning := "", fieldName.ReplaceAllString(found[3], "")
		if given := defaultSentence.FindStringSubmatch(meaning); given != nil {
			defaultValue, meaning = "`"+given[1]+"`", strings.Replace(meaning, given[0], "", 1)
		}
		all = add(all, timeout{name: found[1], defaultValue: defaultValue, meaning: sentence(meaning),
			owners: []string{kind}})
	}
	return all
}

// timeoutFlags returns the flags whose values are durations.
func timeoutFlags(sections []section) (all []timeout) {
	for _, s := range sections {
		for _, o := range s.options {
			if o.kind == "duration" {
				all = add(all, timeout{name: "--" + o.name, defaultValue: "`" + o.defaultValue + "`",
					meaning: cell(sentence(o.usage)), owners: []string{s.title}})
			}
		}
	}
	return all
}

// add appends a row to the table. If a row with the same name, default and meaning exists, add only appends the kind or
// program to the owners of that row.
func add(all []timeout, t timeout) []timeout {
	same := slices.IndexFunc(all, func(o timeout) bool {
		return o.name == t.name && o.defaultValue == t.defaultValue && o.meaning == t.meaning
	})
	if same < 0 {
		return append(all, t)
	}
	all[same].owners = append(all[same].owners, t.owners...)
	return all
}
