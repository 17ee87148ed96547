package apimodel

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checker collects the problems of one call.
type checker struct {
	*Model
	*service
	problems []string
}

func (c *checker) report(path, format string, args ...any) {
	if !c.exceptions[path] {
		c.problems = append(c.problems, path+": "+fmt.Sprintf(format, args...))
	}
}

// tree is a request or an answer in any format. Either text or children are set.
type tree struct {
	name, text string
	children   []*tree
}

func (t *tree) child(name string) *tree {
	for _, c := range t.children {
		if c.name == name {
			return c
		}
	}
	c := &tree{name: name}
	t.children = append(t.children, c)
	return c
}

// query checks a request in the Query protocol. It returns the action.
func (m *Model) query(name string, body []byte) (action string, problems []string) {
	s := m.services[name]
	c := &checker{Model: m, service: s}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return "", []string{"the request is not a form"}
	}
	action = values.Get("Action")
	o, known := s.Operations[action]
	if !known {
		return action, []string{action + ": the action does not exist"}
	}
	root := &tree{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key == "Action" || key == "Version" {
			continue
		}
		at := root
		for part := range strings.SplitSeq(key, ".") {
			at = at.child(part)
		}
		at.text = values.Get(key)
	}
	if o.Input != nil {
		c.request(action, root, o.Input)
	}
	return action, c.problems
}

// request checks a part of a request.
func (c *checker) request(path string, t *tree, r *reference) {
	sh := c.Shapes[r.Shape]
	switch sh.Type {
	case "structure":
		byName := map[string]*reference{}
		for member, ref := range sh.Members {
			byName[c.wireName(member, ref)] = ref
		}
		for _, child := range t.children {
			if ref := byName[child.name]; ref != nil {
				c.request(path+"."+child.name, child, ref)
			} else {
				c.report(path+"."+child.name, "the member does not exist")
			}
		}
		for _, required := range sh.Required {
			name := c.wireName(required, sh.Members[required])
			if !slices.ContainsFunc(t.children, func(child *tree) bool { return child.name == name }) {
				c.report(path+"."+name, "the member is required")
			}
		}
	case "list":
		items := t.children
		if c.Metadata.Protocol == "query" && !sh.Flattened {
			if len(items) != 1 || items[0].name != "member" {
				c.report(path, "the entries of a list must have the name member")
				return
			}
			items = items[0].children
		}
		for i, item := range items {
			if item.name != strconv.Itoa(i+1) && !slices.ContainsFunc(items, func(other *tree) bool {
				return other.name == strconv.Itoa(i+1)
			}) {
				c.report(path, "the entries of a list must be numbered from 1")
			}
			c.request(path, item, sh.Member)
		}
	default:
		c.leaf(path, t, sh)
	}
}

// leaf checks a value.
func (c *checker) leaf(path string, t *tree, sh *shape) {
	if len(t.children) > 0 {
		c.report(path, "a value of type %s has members", sh.Type)
		return
	}
	var err error
	switch sh.Type {
	case "boolean":
		if t.text != "true" && t.text != "false" {
			err = errors.New("not true or false")
		}
	case "integer", "long":
		var n int64
		if n, err = strconv.ParseInt(t.text, 10, 64); err == nil && (sh.Min != nil && float64(n) < *sh.Min ||
			sh.Max != nil && float64(n) > *sh.Max) {
			c.report(path, "%d is outside of the limits", n)
		}
	case "double", "float":
		_, err = strconv.ParseFloat(t.text, 64)
	case "timestamp":
		_, err = time.Parse(time.RFC3339, t.text)
	case "string":
		if len(sh.Enum) > 0 && t.text != "" && !slices.Contains(sh.Enum, t.text) {
			c.report(path, "the value %q does not exist", t.text)
		}
	}
	if err != nil {
		c.report(path, "%q is not a value of type %s", t.text, sh.Type)
	}
}

// answer checks the XML answer to an action.
func (m *Model) answer(name, action string, status int, body []byte) []string {
	s := m.services[name]
	c := &checker{Model: m, service: s}
	root, err := parse(body)
	if err != nil {
		return []string{action + ": the answer is not XML: " + err.Error()}
	}
	if status >= 400 {
		c.refusal(action, root)
		return c.problems
	}
	path := action + "Response"
	if root.name != path {
		c.report(path, "the root of the answer is %q", root.name)
	}
	o := s.Operations[action]
	if o.Output == nil {
		return c.problems
	}
	content := &tree{}
	for _, child := range root.children {
		switch {
		case child.name == "requestId" || child.name == "ResponseMetadata":
		case o.Output.ResultWrapper != "" && child.name == o.Output.ResultWrapper:
			content = child
		default:
			content.children = append(content.children, child)
		}
	}
	// Most successful answers without a result contain the element return, which the published API omits.
	content.children = slices.DeleteFunc(content.children, func(t *tree) bool {
		return t.name == "return" && t.text == "true"
	})
	c.result(path, content, o.Output)
	return c.problems
}

// refusal checks the form of an error.
func (c *checker) refusal(action string, root *tree) {
	at := []string{"Response", "Errors", "Error"}
	if c.Metadata.Protocol == "query" {
		at = []string{"ErrorResponse", "Error"}
	}
	if root.name != at[0] {
		c.report(action, "the root of the error is %q", root.name)
		return
	}
	t := root
	for _, name := range at[1:] {
		t = t.child(name)
	}
	if t.child("Code").text == "" || t.child("Message").text == "" {
		c.report(action, "the error has no code or no message")
	}
}

// result checks a part of an answer.
func (c *checker) result(path string, t *tree, r *reference) {
	sh := c.Shapes[r.Shape]
	switch sh.Type {
	case "structure":
		byName := map[string]*reference{}
		for member, ref := range sh.Members {
			byName[answerName(member, ref)] = ref
		}
		seen := map[string]bool{}
		for _, child := range t.children {
			ref := byName[child.name]
			if ref == nil {
				c.report(path+"."+child.name, "the member does not exist")
				continue
			}
			if list := c.Shapes[ref.Shape]; seen[child.name] && !(list.Flattened || ref.Flattened) {
				c.report(path+"."+child.name, "the member exists twice")
			}
			seen[child.name] = true
			c.result(path+"."+child.name, child, ref)
		}
		for _, required := range sh.Required {
			if name := answerName(required, sh.Members[required]); !seen[name] {
				c.report(path+"."+name, "the member is required")
			}
		}
		if t.text != "" {
			c.report(path, "a structure has the text %q", t.text)
		}
	case "list":
		want := "member"
		if sh.Member.LocationName != "" {
			want = sh.Member.LocationName
		}
		for _, item := range t.children {
			if item.name != want {
				c.report(path, "an entry of the list has the name %q, not %q", item.name, want)
				continue
			}
			c.result(path, item, sh.Member)
		}
	default:
		c.leaf(path, t, sh)
	}
}

// parse converts an XML document.
func parse(body []byte) (*tree, error) {
	decoder := xml.NewDecoder(strings.NewReader(string(body)))
	stack := []*tree{{}}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		top := stack[len(stack)-1]
		switch token := token.(type) {
		case xml.StartElement:
			child := &tree{name: token.Name.Local}
			top.children = append(top.children, child)
			stack = append(stack, child)
		case xml.EndElement:
			top.text = strings.TrimSpace(top.text)
			stack = stack[:len(stack)-1]
		case xml.CharData:
			top.text += string(token)
		}
	}
	if len(stack) != 1 || len(stack[0].children) != 1 {
		return nil, errors.New("the document has no single root")
	}
	return stack[0].children[0], nil
}

// object checks a JSON request or answer of a service whose published API still has the Query protocol. Only the
// names and types of the members are checked.
func (m *Model) object(name, path string, body []byte, r *reference) []string {
	c := &checker{Model: m, service: m.services[name]}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return []string{path + ": not JSON"}
	}
	if r != nil {
		c.value(path, value, r)
	}
	return c.problems
}

func (c *checker) value(path string, value any, r *reference) {
	sh := c.Shapes[r.Shape]
	switch v := value.(type) {
	case map[string]any:
		if sh.Type != "structure" {
			c.report(path, "an object instead of a value of type %s", sh.Type)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if ref := sh.Members[key]; ref != nil {
				c.value(path+"."+key, v[key], ref)
			} else {
				c.report(path+"."+key, "the member does not exist")
			}
		}
		for _, required := range sh.Required {
			if _, has := v[required]; !has {
				c.report(path+"."+required, "the member is required")
			}
		}
	case []any:
		if sh.Type != "list" {
			c.report(path, "a list instead of a value of type %s", sh.Type)
			return
		}
		for _, item := range v {
			c.value(path, item, sh.Member)
		}
	case string:
		c.leaf(path, &tree{text: v}, sh)
	case float64:
		c.leaf(path, &tree{text: strconv.FormatFloat(v, 'f', -1, 64)}, sh)
	case bool:
		c.leaf(path, &tree{text: strconv.FormatBool(v)}, sh)
	}
}
