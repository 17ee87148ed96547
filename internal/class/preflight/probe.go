package preflight

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/class/bootstrap"
)

const (
	signWithin  = 20 * time.Second
	knownWithin = 10 * time.Second
	// probeLife is the lifetime of the probe's token, in case its deletion fails.
	probeLife = 10 * time.Minute
	// probeNode is the node name in the probe's certificate request. The Node never registers.
	probeNode = "machinist-preflight"
)

// Probe tests whether a machine can join, but registers no Node. Probe creates a bootstrap token, requests a kubelet
// certificate with the token, and approves the request. Finally, Probe deletes the token and the request. Probe
// creates and deletes these objects as the user of the given client, and connects to the given API server like a new
// machine.
func Probe(ctx context.Context, caller client.Client, api *rest.Config, now time.Time) (found []Finding, err error) {
	tokens := bootstrap.Tokens{Client: caller}
	attempt := bootstrap.Attempt{Machine: types.NamespacedName{Name: probeNode},
		UID: types.UID(fmt.Sprintf("preflight-%d", now.UnixNano())), Number: 1}
	token, err := tokens.Ensure(ctx, attempt, bootstrap.Terms{Expires: now.Add(probeLife)})
	if err != nil {
		return nil, fmt.Errorf("create a bootstrap token: %w", err)
	}
	defer func() {
		if gone := tokens.Delete(context.WithoutCancel(ctx), attempt); gone != nil {
			err = errors.Join(err, fmt.Errorf("delete the bootstrap token: %w", gone))
		}
	}()
	anonymous := rest.AnonymousClientConfig(api)
	anonymous.BearerToken = token.Value
	kubelet, err := client.New(anonymous, client.Options{Scheme: caller.Scheme(), Mapper: caller.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("create a client with the bootstrap token: %w", err)
	}
	request, err := probeRequest()
	if err != nil {
		return nil, err
	}
	// The API server learns of the token by a watch.
	err = wait.PollUntilContextTimeout(ctx, time.Second/4, knownWithin, true, func(ctx context.Context) (bool, error) {
		err := kubelet.Create(ctx, request)
		if apierrors.IsUnauthorized(err) {
			return false, nil
		}
		return err == nil, err
	})
	switch {
	case wait.Interrupted(err) && ctx.Err() == nil:
		return []Finding{bootstrapTokensDisabled()}, nil
	case apierrors.IsForbidden(err):
		return nil, nil // Join checks this permission and reports it in detail.
	case err != nil:
		return nil, fmt.Errorf("create a CertificateSigningRequest with the bootstrap token: %w", err)
	}
	defer func() {
		if gone := caller.Delete(context.WithoutCancel(ctx), request); client.IgnoreNotFound(gone) != nil {
			err = errors.Join(err, fmt.Errorf("delete CertificateSigningRequest %s: %w", request.Name, gone))
		}
	}()
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Preflight",
		Message: "machinist preflight --probe checks whether certificates are signed."})
	if err := caller.SubResource("approval").Update(ctx, request); err != nil {
		return nil, fmt.Errorf("approve CertificateSigningRequest %s: %w", request.Name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, time.Second, signWithin, true, func(ctx context.Context) (bool, error) {
		err := caller.Get(ctx, client.ObjectKeyFromObject(request), request)
		return len(request.Status.Certificate) > 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return []Finding{noSigner(fmt.Sprintf("A request for a kubelet certificate was approved, and was not signed within %s.",
			signWithin))}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for the certificate of %s: %w", request.Name, err)
	}
	return nil, nil
}

// probeRequest returns the request of a joining kubelet. The private key is discarded, so the certificate is useless.
func probeRequest() (*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + probeNode, Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		return nil, fmt.Errorf("create a certificate request: %w", err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: probeNode + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        certificatesv1.KubeAPIServerClientKubeletSignerName,
			ExpirationSeconds: ptr.To[int32](600),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, nil
}
