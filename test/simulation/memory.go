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

// The memory of controllers is copied from outside: production code does not know that it is simulated.
//
// A new controller is created with the options of its new process, and then gets a deep copy of another controller's
// memory. Whatever connects a controller with its process stays as New created it: options, functions, channels,
// interfaces (such as clients and queues), locks and metrics. Everything else is memory. If a type of memory cannot
// be copied, such as a function in a map, its first use panics, so that no new field is forgotten.

// inherit gives a new controller the memory of another one. Neither may be in a pass.
func inherit[T any](into, from *T) {
	copyMemory(reflect.ValueOf(into).Elem(), reflect.ValueOf(from).Elem())
}

// copyMemory copies the memory in a part of a controller in place, so that pointers to that part stay valid.
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
	if unshare := unsharerOf(t); unshare != nil {
		unshare(into)
	}
}

// unsharer replaces everything that a shallow copy refers to by a copy of its own.
type unsharer func(reflect.Value)

// unsharers contains the unsharer of each known type, nil for a type that refers to nothing mutable.
var unsharers sync.Map

func unsharerOf(t reflect.Type) unsharer {
	if known, ok := unsharers.Load(t); ok {
		return known.(unsharer)
	}
	made := newUnsharer(t)
	unsharers.Store(t, made)
	return made
}

func newUnsharer(t reflect.Type) unsharer {
	switch t.Kind() {
	case reflect.Map:
		return unshareMap(t)
	case reflect.Slice:
		return unshareSlice(t)
	case reflect.Struct:
		return unshareStruct(t)
	case reflect.Pointer:
		if isImmutable(t.Elem()) {
			return nil
		}
		element := unsharerOf(t.Elem())
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
		if unsharerOf(t.Elem()) != nil {
			panic(fmt.Sprintf("a controller stores a %s, which cannot be copied", t))
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Interface:
		if t == reflect.TypeFor[error]() { // Errors are immutable.
			return nil
		}
		panic(fmt.Sprintf("a controller stores a %s, which cannot be copied", t))
	}
	return nil
}

func unshareMap(t reflect.Type) unsharer {
	element := unsharerOf(t.Elem())
	if unsharerOf(t.Key()) != nil {
		panic(fmt.Sprintf("a controller stores a %s, whose keys contain references", t))
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

func unshareSlice(t reflect.Type) unsharer {
	element := unsharerOf(t.Elem())
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

func unshareStruct(t reflect.Type) unsharer {
	if isImmutable(t) {
		return nil
	}
	fields := map[int]unsharer{}
	for i := range t.NumField() {
		if unshare := unsharerOf(t.Field(i).Type); unshare != nil {
			fields[i] = unshare
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return func(v reflect.Value) {
		for i, unshare := range fields {
			unshare(accessible(v.Field(i)))
		}
	}
}

// isConnection reports whether a part of a controller belongs to its process and not to its memory.
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

// isOurs reports whether a type belongs to the controllers, and not to the API or to the answers of providers.
func isOurs(t reflect.Type) bool {
	of, ours := strings.CutPrefix(t.PkgPath(), "machinist.dev/machinist/")
	return ours && !strings.HasPrefix(of, "api/") && !strings.HasPrefix(of, "pkg/")
}

// isImmutable reports whether values of a type never change once they are stored: a time, a parsed budget, an API
// object or a part of one, and an answer of a provider.
func isImmutable(t reflect.Type) bool {
	return t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[disruption.Budget]() ||
		t.Kind() == reflect.Struct && !isOurs(t)
}

// accessible returns an addressable field so that it can be read and set although it is unexported.
func accessible(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}
