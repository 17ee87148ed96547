// Package roots adds the certificates of the public certificate authorities to a program. Importing it is enough:
//
//	import _ "machinist.dev/machinist/internal/platform/roots"
//
// The certificates are used only if the system has no root certificates, as in a minimal container image. Each package
// that connects to a cloud or an API server imports this package, so programs need not import it.
package roots

import _ "golang.org/x/crypto/x509roots/fallback"
