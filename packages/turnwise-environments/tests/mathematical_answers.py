"""Mathematical answers with the accepted ones: wrong, right in another form, and expensive.

The first wrong ones are what math-verify 0.9 takes by itself. For tests, and for
benchmarks/mathematics_verifier.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from turnwise_environments.rewards.expressions import MAX_CHARACTERS


class Pair(NamedTuple):
    """An answer with the accepted one. Example: Pair("integer", "17.0", "17", True)."""

    kind: str
    given: str
    accepted: str
    right: bool


def pairs() -> Iterator[Pair]:
    """The pairs of mathematical_pairs.txt, on which the verifier was not tuned."""
    for line in Path(__file__).with_name("mathematical_pairs.txt").read_text().splitlines():
        if not line.startswith("#"):
            kind, accepted, *forms = line.split(" | ")
            for right, written in zip((True, False), forms, strict=True):
                for given in written.split(" ;; "):
                    yield Pair(kind, given, accepted, right)


WRONG = [
    ("1=2", "2"),
    ("x=1=2", "2"),
    ("a=7=101", "101"),
    ("10%", "0.1"),
    ("10%", "10"),
    ("The answer is not 5", "5"),
    ("I guess 1, 2, 3", "3"),
    ("5 cm", "5 km"),
    (r"\int_0^1 x\,dx", r"\frac{1}{2}"),
    (r"\int_0^1 \pi x\,dx", r"\frac{\pi}{2}"),
    (r"\sum_{i=1}^{2} \pi", r"2\pi"),
    (r"1=2\sqrt{2}", r"2\sqrt{2}"),
    (r"a=7=\sqrt{2}", r"\sqrt{2}"),
    (r"not \sqrt{2}", r"\sqrt{2}"),
    (r"\sqrt{2}, \sqrt{3}", r"\sqrt{2}"),
    (r"100\pi\%", r"\pi"),
    ("3.141593", r"\pi"),
    ("1.41421356237", r"\sqrt{2}"),
    (r"10^{-30}+\sqrt{2}", r"\sqrt{2}"),
    (r"\sqrt{x^2}", "x"),
    ("x+0y", "x"),
    ("x+2", "x+1"),
    ("2y", "2x"),
    ("2", "2x"),
    ("2x", "2"),
    ("3 m", "3 km"),
    ("x^{2", "x^2"),
    ("x+1=0", "x+1"),
    ("x<5", r"x\le 5"),
    ("x>5", "x<5"),
    ("y=2x", "y=2x+1"),
    ("[1,2]", "(1,2)"),
    (r"\{1,2\}", "(1,2)"),
    ("1,2", "(1,2)"),
    ("(2,1)", "(1,2)"),
    ("(2,1)", "(3,1)"),
    ("1,1,2", "1,2"),
    (r"(-\infty,3]\cup(4,5)", r"(-\infty,3]\cup(4,\infty)"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
    (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ("1 2", r"3\sqrt{1}"),
    ("{2}{3}x", "5x"),
    ("2{3}x", "5x"),
    ("(2)(3)x", "5x"),
    (r"3\frac{1}{2}x", r"\frac{7x}{2}"),
    ("(2)(3)+x", "x+5"),
    (r"\frac{1}{0}", r"\infty"),
    (r"\infty-\infty", "0x"),
    (r"5\sqrt2 cm", r"5\sqrt{2}\text{ km}"),
    ("Monday", r"\text{Friday}"),
    ("Monday or Friday", r"\text{Friday}"),
    ("", r"\sqrt{2}"),
    (r"\boxed{}", r"\sqrt{2}"),
    ("[x]", "x"),
    ("2", "2ab"),
    ("2ab", "2"),
    ("5", "5m"),
    ("x=y=5", "5"),
    ("x=x+1", "x+1"),
    ("A = B", "B"),
    ("1 and 2", "1"),
    ("5 m^3", "5 m^2"),
    (r"\binom52", "10"),
    (r"\frac123", r"\frac{1}{2}"),
    (r"\frac{-5}{-3}", r"-\frac{5}{3}"),
    (r"\boxed{1}\boxed{2}", "12"),
    ("102_9", "102_8"),
]
WRAPPED = [
    r"$\boxed{42}$",
    r"\(42\)",
    r"\[42\]",
    "$$42$$",
    r"$$\boxed{42}$$",
    r"\boxed{$42$}",
    r"\boxed{42}.",
    "$42$.",
]
RIGHT = [
    ("1/2", r"\frac{1}{2}"),
    ("0.5", r"\frac12"),
    (r"\frac{1}{2}", "0.5"),
    ("1+x", "x+1"),
    ("x^2-1", "(x-1)(x+1)"),
    ("x**2", "x^2"),
    ("2000 m", "2 km"),
    ("(2)(3)x", "6x"),
    (r"2\,x", "x+x"),
    (r"\left( x+1 \right)\!^2", "x^2+2x+1"),
    ("x(2)", "2x"),
    ("x(x+1)", "x^2+x"),
    ("f(x)+1", "1+f(x)"),
    ("2.5x", r"\frac{5x}{2}"),
    ("sqrt(8)", r"2\sqrt{2}"),
    ("2*pi", r"2\pi"),
    (r"\boxed{\sqrt{2}}", r"\sqrt2"),
    (r"$\frac{\sqrt{2}}{2}$.", r"\frac{1}{\sqrt{2}}"),
    ("e^{-x}", r"\frac{1}{e^x}"),
    (r"\sin^2 x+\cos^2 x+x", "1+x"),
    (r"\log_2 8 + x", "3+x"),
    (r"\tan\frac{\pi}{3}", r"\sqrt{3}"),
    ("3-2i", "-2i+3"),
    ("x_1+x_2", "x_{2}+x_{1}"),
    ("|x-1|", "|1-x|"),
    ("2,1", "1,2"),
    (r"\{2,1\}", r"\{1,2\}"),
    (r"1\pm\sqrt2", r"1+\sqrt{2},1-\sqrt{2}"),
    ("[0.5,2)", r"[\frac12,2)"),
    (r"(0.5,\pi)", r"(\frac12,\pi)"),
    (r"x \in (4,\infty)\cup(-\infty,3]", r"(-\infty,3]\cup(4,\infty)"),
    (r"\begin{bmatrix}0.5&2\\3&2+2\end{bmatrix}", r"\begin{pmatrix}\frac12&2\\3&4\end{pmatrix}"),
    (r"x = 2\sqrt{3}", r"x=\sqrt{12}"),
    (r"2\sqrt{3}", r"x=\sqrt{12}"),
    ("y-2x=1", "y=2x+1"),
    ("5>x", "x<5"),
    (r"1\le x<2", r"2>x\ge1"),
    (r"5\sqrt{2}", r"5\sqrt{2}\text{ cm}"),
    (r"5\sqrt2 cm", r"5\sqrt{2}\text{ cm}"),
    ("friday", r"\text{Friday}"),
    *((one, "42") for one in WRAPPED),
    (r"\frac{-3}{4}", r"-\frac34"),
    (r"\frac{360}{7}", r"\frac{360}7"),
    (r"\frac{\sqrt{3}}{2}", r"\frac{\sqrt3}2"),
    ("(C)", "C"),
    ("C", r"\text{(C)}"),
    ("10 m^2", "10 m²"),
    (r"10 \text{ m}^{2}", "10 square meters"),
    ("5 s", "5 seconds"),
    ("5 mi", "5 miles"),
    ("5 lb", "5 pounds"),
    ("5m", r"5\text{ m}"),
    (r"\varnothing", r"\emptyset"),
    (r"\binom52", r"\binom{5}{2}"),
    ("10", r"\binom52"),
    ("x=5", "5"),
    ("x=1, x=2", "1,2"),
    (r"1.5\times10^{-3}", "0.0015"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"),
    (r"\int_0^1 x dx", r"\int_0^1 x \, dx"),  # of what cannot be read: to the letter
]
ACCEPTED = r"x+\sqrt{2}"
EXPENSIVE = [
    r"(x^{2}+\sqrt{x+\sqrt{x+\sqrt{x}}})^{50}",  # more than its time
    "9^{9^{9}}",
    r"\binom{9999999999}{4999999999}",
    "(" * 12 + "x" + ")" * 12,
    r"\sin(\cos(" * 5 + "x" + "))" * 5,
    r"\exp(\exp(\exp(\exp(x))))",
    "-" * (MAX_CHARACTERS - 1) + "x",
    "(" * 10_000,
]
"""Wrong answers for ACCEPTED that take long to be worked out."""
