package machinedeployment

import (
	"slices"
	"testing"
)

// D-4.
func TestShare(t *testing.T) {
	for _, test := range []struct {
		n       int32
		weights []int32
		want    []int32
	}{
		{0, []int32{1, 2}, []int32{0, 0}},
		{-3, []int32{1, 2}, []int32{0, 0}},
		{5, []int32{0, 0}, []int32{0, 0}},
		{5, nil, []int32{}},
		{6, []int32{1, 2}, []int32{2, 4}},
		{1, []int32{5, 5}, []int32{0, 1}},
		{3, []int32{5, 5}, []int32{1, 2}},
		{10, []int32{1, 1, 1}, []int32{3, 3, 4}},
		{7, []int32{70, 20, 10}, []int32{5, 1, 1}},
		{100000, []int32{100000, 100000, 1}, []int32{50000, 50000, 0}},
	} {
		got := share(test.n, test.weights)
		if !slices.Equal(got, test.want) {
			t.Errorf("%d shared by %v is %v, expected %v", test.n, test.weights, got, test.want)
		}
		var sum int32
		for _, part := range got {
			sum += part
		}
		if test.n > 0 && slices.ContainsFunc(test.weights, func(w int32) bool { return w > 0 }) && sum != test.n {
			t.Errorf("%d shared by %v adds up to %d", test.n, test.weights, sum)
		}
	}
}
