package validation

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/window"
)

// Each of these fields of a budget has its own reason in the condition Valid.
var (
	BudgetSelector     = field.NewPath("spec", "selector")
	BudgetMaxDisrupted = field.NewPath("spec", "maxDisrupted")
	BudgetReasons      = field.NewPath("spec", "reasons")
	BudgetWindows      = field.NewPath("spec", "windows")
)

// Budget returns an error for each invalid field of a budget. Errors of the selector come first.
func Budget(b *v1beta1.MachineDisruptionBudget) field.ErrorList {
	var errs field.ErrorList
	if _, err := metav1.LabelSelectorAsSelector(&b.Spec.Selector); err != nil {
		errs = append(errs, field.Invalid(BudgetSelector, metav1.FormatLabelSelector(&b.Spec.Selector), err.Error()))
	}
	if _, _, ok := MaxDisrupted(b.Spec.MaxDisrupted); !ok {
		errs = append(errs, field.Invalid(BudgetMaxDisrupted, b.Spec.MaxDisrupted.String(),
			"must be a number of machines that is not negative, or a percentage from 0% to 100%"))
	}
	_, invalid := window.Parse(BudgetWindows, b.Spec.Windows)
	errs = append(errs, invalid...)
	switch b.Spec.Apply {
	case "", v1beta1.ApplyInside:
	case v1beta1.ApplyOutside:
		if len(b.Spec.Windows) == 0 {
			errs = append(errs, field.Required(BudgetWindows, "must have at least one window if apply is Outside"))
		}
	default:
		errs = append(errs, field.NotSupported(field.NewPath("spec", "apply"), b.Spec.Apply,
			[]v1beta1.DisruptionApply{v1beta1.ApplyInside, v1beta1.ApplyOutside}))
	}
	return errs
}

// MaxDisrupted parses a value of maxDisrupted. It returns the number, whether it is a percentage, and whether it is
// valid.
func MaxDisrupted(value intstr.IntOrString) (n int, percentage, ok bool) {
	if value.Type == intstr.Int {
		return value.IntValue(), false, value.IntVal >= 0
	}
	digits, percentage := strings.CutSuffix(value.StrVal, "%")
	parsed, err := strconv.ParseUint(digits, 10, 8)
	return int(parsed), percentage, percentage && err == nil && parsed <= 100
}
