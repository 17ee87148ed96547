package bootstrap

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// userPrefix precedes the token id in the user name of a client with a bootstrap token.
const userPrefix = "system:bootstrap:"

var tokenIDForm = regexp.MustCompile(`^[a-z0-9]{6}$`)

// TokenIDOf returns the id of the bootstrap token with which a user authenticated. ok is false for other users.
func TokenIDOf(username string) (id string, ok bool) {
	id, ok = strings.CutPrefix(username, userPrefix)
	return id, ok && tokenIDForm.MatchString(id)
}

// Record describes a bootstrap token of the target cluster, without its secret half.
type Record struct {
	// Owner is the launch attempt in the form of Attempt.String, or empty if the token does not belong to a Machine.
	Owner string
	// Machine is the namespace and name of the Machine for which the token was created.
	Machine types.NamespacedName
	// ExpiryTime is the end of the token's validity. The time is zero if the Secret contains no valid time, which
	// happens only to tokens that Machinist did not create.
	ExpiryTime time.Time
}

// Lookup returns the record of the token with the id, or nil if no client can authenticate with such a token.
func (t Tokens) Lookup(ctx context.Context, id string) (*Record, error) {
	if !tokenIDForm.MatchString(id) {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := t.Client.Get(ctx, client.ObjectKey{Namespace: tokenNamespace, Name: secretName(id)}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read bootstrap token %s of the target cluster: %w", id, err)
	}
	if secret.Type != tokenType || !secret.DeletionTimestamp.IsZero() ||
		string(secret.Data[fieldID]) != id || string(secret.Data[fieldAuth]) != "true" {
		return nil, nil
	}
	r := &Record{Owner: secret.Annotations[annotationOwner]}
	r.Machine.Namespace, r.Machine.Name, _ = strings.Cut(secret.Annotations[annotationMachine], "/")
	if expires, err := time.Parse(time.RFC3339, string(secret.Data[fieldExpiration])); err == nil {
		r.ExpiryTime = expires
	}
	return r, nil
}

func secretName(id string) string { return "bootstrap-token-" + id }
