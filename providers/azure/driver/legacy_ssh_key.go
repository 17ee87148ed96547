package driver

import (
	"crypto/sha512"
	"encoding/base64"
	"math/big"
	"slices"
)

// unusableSSHKey returns a public key in OpenSSH format whose private key is unknown. Import must return the same
// key each time, so the key is not random. The key is the first point of the curve Ed25519 (RFC 8032) in a series of
// hashes. Its private key is the discrete logarithm of that point.
func unusableSSHKey() string {
	prime := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	hash := sha512.Sum512_256([]byte("machinist: an SSH key without a private key"))
	for !isOnCurve(hash[:], prime) {
		hash = sha512.Sum512_256(hash[:])
	}
	var blob []byte
	for _, part := range [][]byte{[]byte("ssh-ed25519"), hash[:]} {
		blob = append(append(blob, 0, 0, 0, byte(len(part))), part...)
	}
	return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(blob) + " machinist-no-private-key"
}

// isOnCurve reports whether an encoded y coordinate belongs to a point of the curve -x² + y² = 1 + d·x²·y² with
// d = -121665/121666.
func isOnCurve(encoded []byte, prime *big.Int) bool {
	bytes := slices.Clone(encoded)
	slices.Reverse(bytes)
	bytes[0] &= 0x7f // the sign of x
	y := new(big.Int).SetBytes(bytes)
	square := new(big.Int).Mul(y, y)
	// x² = (y² - 1) / (d·y² + 1), so x exists if the product of the dividend and the divisor is a square.
	dividend := new(big.Int).Sub(square, big.NewInt(1))
	d := new(big.Int).Mul(big.NewInt(-121665), new(big.Int).ModInverse(big.NewInt(121666), prime))
	divisor := d.Add(d.Mul(d, square), big.NewInt(1))
	product := dividend.Mod(dividend.Mul(dividend, divisor), prime)
	return y.Cmp(prime) < 0 && big.Jacobi(product, prime) == 1
}
