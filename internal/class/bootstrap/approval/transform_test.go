package approval

import (
	"bytes"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"
)

// Rule: approval-reads-live.
func TestTransformTruncatesLongRequest(t *testing.T) {
	padded := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Username: "system:bootstrap:abcdef",
		Groups: []string{"system:bootstrappers"}, Request: bytes.Repeat([]byte("x"), 1<<20),
	}}
	fault := readRequest(padded).Fault
	object, err := Transform(padded)
	if err != nil {
		t.Fatal(err)
	}
	csr := object.(*certificatesv1.CertificateSigningRequest)
	if n := cap(csr.Spec.Request); n > 2*kubeletcsr.MaxRequest {
		t.Errorf("%d bytes are kept", n)
	}
	if got := readRequest(csr).Fault; got == "" || got != fault {
		t.Errorf("after Transform the fault is %q, and before it was %q", got, fault)
	}
}
