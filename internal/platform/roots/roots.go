// Package roots adds the certificates of the public certificate authorities to a program. Importing it is enough:
//
//	import _ "machinist.dev/machinist/internal/platform/roots"
//
// They are only used if the system has no root certificates, as in an image that contains nothing but the program.
// There, every request to a cloud would fail without them. Packages that connect to clouds and API servers import this
// package, so that programs need not.
package roots

import _ "golang.org/x/crypto/x509roots/fallback" // Imported for its side effect.
