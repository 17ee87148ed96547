package simulation

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
	"unsafe"

	"machinist.dev/machinist/internal/fleet/disruption"
)

// This code copies the memory of controllers by reflection, so that production code contains nothing for the
// simulation.
//
// First, a new controller is created with the options of its new process. Then the new controller gets a deep copy of
// another controller's memory. The new controller keeps its own connections to its process: options, functions,
// channels, interfaces (such as clients and queues), locks and metrics. Everything else is memory. A field that cannot
// be copied, such as a map of functions, panics on its first use, so no new field is forgotten.

// inherit copies the memory of one controller to a new controller. Neither may be reconciling.
func inherit[T any](into, from *T) {
	copyMemory(reflect.ValueOf(into).Elem(), reflect.ValueOf(from).Elem())
}

// copyMemory copies the memory in one part of a controller. copyMemory writes to the existing part, so that pointers to
// it stay valid.
func copyMemory(into, from reflect.Value) {
	t := into.Type()
	switch {
	case isConnection(t):
		return
	case t.Kind() == reflect.Struct && isOurs(t):
		for i := range t.NumField() {
			copyMemory(accessibleField(into.Field(i)), accessibleField(from.Field(i)))
		}
		return
	case t.Kind() == reflect.Pointer && isOurs(t.Elem()) && !into.IsNil() && !from.IsNil():
		copyMemory(into.Elem(), from.Elem())
		return
	}
	into.Set(from)
	if unshare := unsharerOf(t); unshare != nil {
		unshare(into)
	}
}

// referenceCopier is a function that replaces each reference in a shallow copy by a reference to a separate copy.
type referenceCopier func(reflect.Value)

// unsharers contains the results of unsharerOf, by type. The result is nil for a type that contains no reference to
// mutable data.
var unsharers sync.Map

func unsharerOf(t reflect.Type) referenceCopier {
	if known, ok := unsharers.Load(t); ok {
		return known.(referenceCopier)
	}
	made := newUnsharer(t)
	unsharers.Store(t, made)
	return made
}

func newUnsharer(t reflect.Type) referenceCopier {
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

func unshareMap(t reflect.Type) referenceCopier {
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

func unshareSlice(t reflect.Type) referenceCopier {
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

func unshareStruct(t reflect.Type) referenceCopier {
	if isImmutable(t) {
		return nil
	}
	fields := map[int]referenceCopier{}
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
			unshare(accessibleField(v.Field(i)))
		}
	}
}

// isConnection reports whether fields of a type connect a controller with its process. Such fields are not memory.
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

// isOurs reports whether a type belongs to the controllers, and not to the API or to provider responses.
func isOurs(t reflect.Type) bool {
	of, ours := strings.CutPrefix(t.PkgPath(), "machinist.dev/machinist/")
	return ours && !strings.HasPrefix(of, "api/") && !strings.HasPrefix(of, "pkg/")
}

// isImmutable reports whether stored values of this type never change: times, parsed budgets, API objects and their
// parts, and provider responses.
func isImmutable(t reflect.Type) bool {
	return t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[disruption.Budget]() ||
		t.Kind() == reflect.Struct && !isOurs(t)
}

// accessibleField returns an addressable field that can be read and set even if it is unexported.
func accessibleField(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}
