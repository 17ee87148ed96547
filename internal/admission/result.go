package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Result is what is said of an object.
type Result struct {
	// Errors refuse it. Each names the field, the value and what is allowed.
	Errors field.ErrorList
	// Warnings are shown to whoever applies it.
	Warnings []string
}

func (v *Result) refuse(errors ...*field.Error) { v.Errors = append(v.Errors, errors...) }

// warn adds a sentence about a field.
func (v *Result) warn(path *field.Path, format string, args ...any) {
	v.Warnings = append(v.Warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

// newSince drops the errors that the former object had as well, so that what slipped through can be worked on.
func (v Result) newSince(former Result) Result {
	v.Errors = slices.DeleteFunc(v.Errors, func(e *field.Error) bool {
		return slices.ContainsFunc(former.Errors, func(f *field.Error) bool { return f.Error() == e.Error() })
	})
	return v
}
