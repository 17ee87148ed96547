package machineset

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Writing to a nil map would panic.
func TestSetStateHasNoNilMaps(t *testing.T) {
	r := reflect.ValueOf(newSharedState().get(&v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid"}})).Elem()
	for i := range r.NumField() {
		if f := r.Field(i); f.Kind() == reflect.Map && f.IsNil() && f.Type() != reflect.TypeFor[recoveries]() { // Those are replaced as a whole.
			t.Errorf("%s is nil", r.Type().Field(i).Name)
		}
	}
}
