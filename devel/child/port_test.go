package child

import "testing"

// A port is given once, although nobody listens there yet.
func TestAPortIsReservedForWhoGotIt(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	// A lock is the opened file's, not the process's: it keeps this process off as it does others.
	if again, err := reserve(port); again || err != nil {
		t.Errorf("port %d is reserved again: %t, %v", port, again, err)
	}
	other, err := FreePort()
	if err != nil || other == port {
		t.Errorf("the next port is %d, %v", other, err)
	}
}
