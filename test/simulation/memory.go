package simulation

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
	"unsafe"

	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/platform/queueing"
)

// The controllers' memory is copied from outside: production code does not know that it is simulated.
//
// A new controller is made with the options of its new process, and then gets a deep copy of what another one knows.
// What connects a controller with its process stays as New made it: options, functions, channels, interfaces (such as
// clients and queues), locks and metrics. Everything else is memory. Memory that cannot be copied, such as a function
// in a map, panics when its type is met first, so that no new field is forgotten.

// inherit gives a new controller the memory of another one, between two passes of both.
func inherit[T any](into, from *T) {
	copyMemory(reflect.ValueOf(into).Elem(), reflect.ValueOf(from).Elem())
}

// copyMemory copies what is memory in a part of a controller, in place: who points to that part already sees it.
func copyMemory(into, from reflect.Value) {
	t := into.Type()
	switch {
	case isConnection(t):
		return
	case t.Kind() == reflect.Struct && isOurs(t):
		for i := range t.NumField() {
			copyMemory(accessible(into.Field(i)), accessible(from.Field(i)))
		}
		return
	case t.Kind() == reflect.Pointer && isOurs(t.Elem()) && !into.IsNil() && !from.IsNil():
		copyMemory(into.Elem(), from.Elem())
		return
	case t.Kind() == reflect.Slice && t.Elem() == reflect.TypeFor[*queueing.Trigger]():
		for i := range into.Len() {
			copyMemory(into.Index(i), from.Index(i))
		}
		return
	}
	into.Set(from)
	if separate := separatorOf(t); separate != nil {
		separate(into)
	}
}

// separator gives a value, which is a shallow copy, its own copy of everything that it refers to.
type separator func(reflect.Value)

// separators has the separator of each type that was met, nil for one that refers to nothing that changes.
var separators sync.Map

func separatorOf(t reflect.Type) separator {
	if known, ok := separators.Load(t); ok {
		return known.(separator)
	}
	made := makeSeparator(t)
	separators.Store(t, made)
	return made
}

func makeSeparator(t reflect.Type) separator {
	switch t.Kind() {
	case reflect.Map:
		return separateMap(t)
	case reflect.Slice:
		return separateSlice(t)
	case reflect.Struct:
		return separateStruct(t)
	case reflect.Pointer:
		if isImmutable(t.Elem()) {
			return nil
		}
		element := separatorOf(t.Elem())
		return func(v reflect.Value) {
			if v.IsNil() {
				return
			}
			own := reflect.New(t.Elem())
			own.Elem().Set(v.Elem())
			if element != nil {
				element(own.Elem())
			}
			v.Set(own)
		}
	case reflect.Array:
		if separatorOf(t.Elem()) != nil {
			panic(fmt.Sprintf("a controller remembers a %s, of which no copy can be made", t))
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Interface:
		if t == reflect.TypeFor[error]() { // What an error says never changes.
			return nil
		}
		panic(fmt.Sprintf("a controller remembers a %s, of which no copy can be made", t))
	}
	return nil
}

func separateMap(t reflect.Type) separator {
	element := separatorOf(t.Elem())
	if separatorOf(t.Key()) != nil {
		panic(fmt.Sprintf("a controller remembers a %s, whose keys refer to something", t))
	}
	return func(v reflect.Value) {
		if v.IsNil() {
			return
		}
		own := reflect.MakeMapWithSize(t, v.Len())
		value := reflect.New(t.Elem()).Elem()
		for entries := v.MapRange(); entries.Next(); {
			value.Set(entries.Value())
			if element != nil {
				element(value)
			}
			own.SetMapIndex(entries.Key(), value)
		}
		v.Set(own)
	}
}

func separateSlice(t reflect.Type) separator {
	element := separatorOf(t.Elem())
	return func(v reflect.Value) {
		if v.IsNil() {
			return
		}
		own := reflect.MakeSlice(t, v.Len(), v.Len())
		reflect.Copy(own, v)
		if element != nil {
			for i := range own.Len() {
				element(own.Index(i))
			}
		}
		v.Set(own)
	}
}

func separateStruct(t reflect.Type) separator {
	if isImmutable(t) {
		return nil
	}
	fields := map[int]separator{}
	for i := range t.NumField() {
		if separate := separatorOf(t.Field(i).Type); separate != nil {
			fields[i] = separate
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return func(v reflect.Value) {
		for i, separate := range fields {
			separate(accessible(v.Field(i)))
		}
	}
}

// isConnection reports whether a part of a controller belongs to its process rather than to its memory.
func isConnection(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return true
	case reflect.Interface:
		return t != reflect.TypeFor[error]()
	case reflect.Pointer:
		return strings.HasPrefix(t.Elem().PkgPath(), "github.com/prometheus/")
	case reflect.Struct:
		return t.PkgPath() == "sync" || strings.HasSuffix(t.Name(), "Options")
	}
	return false
}

// isOurs reports whether a type is one of the controllers' own, and not of the API or of what providers say.
func isOurs(t reflect.Type) bool {
	of, ours := strings.CutPrefix(t.PkgPath(), "machinist.dev/machinist/")
	return ours && !strings.HasPrefix(of, "api/") && !strings.HasPrefix(of, "pkg/")
}

// isImmutable reports whether nobody changes a value of the type once it is remembered: a time, a budget as it was
// understood, an API object or a part of one, and what a provider has said.
func isImmutable(t reflect.Type) bool {
	return t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[disruption.Budget]() ||
		t.Kind() == reflect.Struct && !isOurs(t)
}

// accessible returns a field, which is addressable, so that it can be read and set although its name is private.
func accessible(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}
