package driver

import (
	"crypto/ed25519"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"
)

func TestIsOnCurveAcceptsPublicKeys(t *testing.T) {
	prime := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	off := 0
	for range 64 {
		key, _, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !isOnCurve(key, prime) {
			t.Fatalf("the public key %x is rejected", key)
		}
		key[0] ^= 1 // about half of all numbers are not coordinates of a point
		if !isOnCurve(key, prime) {
			off++
		}
	}
	if off == 0 {
		t.Error("every number is accepted")
	}
	blob, err := base64.StdEncoding.DecodeString(strings.Fields(unusableSSHKey())[1])
	if err != nil || len(blob) != 51 || !isOnCurve(blob[19:], prime) {
		t.Errorf("the generated key %x is not a public key: %v", blob, err)
	}
}
