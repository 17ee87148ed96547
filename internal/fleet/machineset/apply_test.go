package machineset

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOnlyConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed"))
	other := errors.New("other")
	for _, test := range []struct {
		err  error
		want bool
	}{
		{conflict, true},
		{fmt.Errorf("delete machine a: %w", conflict), true},
		{errors.Join(conflict, errors.Join(fmt.Errorf("x: %w", conflict))), true},
		{other, false},
		{errors.Join(conflict, errors.Join(conflict, other)), false},
	} {
		if got := onlyConflicts(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}
