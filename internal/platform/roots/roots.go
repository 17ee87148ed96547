// Package roots brings the certificates of the public certificate authorities into a program. Importing it is enough:
//
//	import _ "machinist.dev/machinist/internal/platform/roots"
//
// They count only where the system has none, as in an image that contains the program and nothing else. There every
// request to a cloud would fail without them. The packages import it that connect to clouds and API servers, so that no
// program has to.
package roots

import _ "golang.org/x/crypto/x509roots/fallback" // Its import is its effect.
