//go:build !faults

package fault

// Enabled says whether this is a faults build.
const Enabled = false

// Off says whether a guard is turned off. It never is in a release build.
func Off(Guard) bool { return false }

// AnyOff says whether any guard of this process is turned off.
func AnyOff() bool { return false }

// At passes a point and returns what the caller is to do wrong there: nothing.
func At(Point) Action { return None }

// N is the number that the point was armed with.
func N(Point) int { return 0 }

// Armed says whether a point is armed. None is in a release build.
func Armed(Point) bool { return false }
