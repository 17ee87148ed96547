package child

import "testing"

func TestAPortIsReservedOnce(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := reserve(port); again || err != nil {
		t.Errorf("port %d is reserved again: %t, %v", port, again, err)
	}
	other, err := FreePort()
	if err != nil || other == port {
		t.Errorf("the next port is %d, %v", other, err)
	}
}
