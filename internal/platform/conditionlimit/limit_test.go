package conditionlimit

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func named(types ...string) (list []metav1.Condition) {
	for _, t := range types {
		list = append(list, metav1.Condition{Type: t})
	}
	return list
}

// Rule: own-conditions-have-space.
func TestApplyLeavesRoomForAllOwnConditions(t *testing.T) {
	var others []string
	for i := range 40 {
		others = append(others, fmt.Sprintf("example.com/%d", i))
	}
	for name, k := range map[string]Kind{"Machine": Machine, "Fleet": Fleet, "Class": Class, "HealthCheck": HealthCheck,
		"Budget": Budget} {
		before := named(slices.Concat(others, k.Own)...)
		after := k.Apply(slices.Clone(before))
		if len(after) != k.Most || after[0].Type != others[0] || after[len(after)-1].Type != k.Own[len(k.Own)-1] {
			t.Errorf("%s: %d conditions are left, the first is %s", name, len(after), after[0].Type)
		}
		few := named(append(slices.Clone(others[:k.Most-len(k.Own)]), k.Own[0])...)
		if got := k.Apply(slices.Clone(few)); !slices.Equal(got, few) {
			t.Errorf("%s: %d of %d conditions are left although there is room for all", name, len(got), len(few))
		}
	}
}

// Apply may remove a condition that Own does not list.
func TestOwnListsEveryConditionOfTheAPI(t *testing.T) {
	listed := slices.Concat(Machine.Own, Fleet.Own, Class.Own, HealthCheck.Own, Budget.Own)
	for _, file := range []string{"conditions.go", "machine_conditions.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1beta1/"+file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Condition") {
				return true
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			among := listed
			if file == "machine_conditions.go" {
				among = Machine.Own
			}
			if !slices.Contains(among, value) {
				t.Errorf("%s is not listed", spec.Names[0].Name)
			}
			return true
		})
	}
}
