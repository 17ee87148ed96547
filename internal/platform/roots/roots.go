// Package roots adds the certificates of the public certificate authorities to a program. Importing it is enough:
//
//	import _ "machinist.dev/machinist/internal/platform/roots"
//
// The certificates are used only if the system has no root certificates, as in an image that contains nothing but
// the program. In such an image, every request to a cloud would fail without these certificates. Programs need not
// import this package, because each package that connects to a cloud or an API server imports it.
package roots

import _ "golang.org/x/crypto/x509roots/fallback" // Imported for its side effect.
