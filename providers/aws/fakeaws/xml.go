package fakeaws

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// node is an element of an XML document: a leaf with a text, or a parent of other elements.
type node struct {
	name, text string
	children   []node
}

// leaf returns an element with a text. Empty strings result in an empty element list, as AWS omits unset members.
func leaf(name string, value any) node {
	switch v := value.(type) {
	case string:
		return node{name: name, text: v}
	case bool:
		return node{name: name, text: strconv.FormatBool(v)}
	case int:
		return node{name: name, text: strconv.Itoa(v)}
	case time.Time:
		return node{name: name, text: v.UTC().Format("2006-01-02T15:04:05.000Z")}
	}
	panic(fmt.Sprintf("a value of type %T in an answer", value))
}

func parent(name string, children ...node) node { return node{name: name, children: children} }

// set returns a list in the format of EC2.
func set(name string, items ...[]node) node {
	out := node{name: name}
	for _, item := range items {
		out.children = append(out.children, node{name: "item", children: item})
	}
	return out
}

// texts returns a list of strings in the format of EC2.
func texts(name string, items ...string) node {
	out := node{name: name}
	for _, item := range items {
		out.children = append(out.children, leaf("item", item))
	}
	return out
}

// tagSet returns the tags of a resource.
func tagSet(tags map[string]string) node {
	var items [][]node
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		items = append(items, []node{leaf("key", key), leaf("value", tags[key])})
	}
	return set("tagSet", items...)
}

func (n node) write(to *bytes.Buffer) {
	if n.text == "" && len(n.children) == 0 {
		fmt.Fprintf(to, "<%s/>", n.name)
		return
	}
	fmt.Fprintf(to, "<%s>", n.name)
	_ = xml.EscapeText(to, []byte(n.text)) // A buffer returns no errors.
	for _, child := range n.children {
		child.write(to)
	}
	fmt.Fprintf(to, "</%s>", n.name)
}

// document returns an XML document whose root has a namespace.
func document(root, namespace string, children ...node) []byte {
	var out bytes.Buffer
	out.WriteString(xml.Header)
	fmt.Fprintf(&out, "<%s xmlns=%q>", root, namespace)
	for _, child := range children {
		child.write(&out)
	}
	fmt.Fprintf(&out, "</%s>", root)
	return out.Bytes()
}
