//! Equations: CEL over numbers alone. Anything that could fail later is refused at once.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{Expr, LiteralValue};
use cel::common::types::{CelDouble, DOUBLE_TYPE};
use cel::common::value::CowVal;
use cel::{Context, Env, ExecutionError, IdedExpr, Value, extensions};

/// Maximum length of an equation, in bytes.
pub const MAX_BYTES: usize = 1024;

/// Maximum nesting of parentheses and `? :`, and maximum number of operator characters. Reading takes about 10 KiB of
/// stack per level, and 2 KiB per operator.
const MAX_DEPTH: u16 = 16;
const MAX_OPERATORS: usize = 128;

/// Prefix of the names of metrics in an equation.
pub const PREFIX: &str = "cm_normalized_";

/// Description of the allowed parts of an equation, apart from metrics, numbers and parentheses.
const ALLOWED: &str = "+ - * /, comparisons, && || !, ? :, math.greatest, math.least and exp";

/// Names of the allowed operators and functions in CEL, separated by spaces.
const FUNCTIONS: &str = "_+_ _-_ _*_ _/_ -_ _<_ _<=_ _>_ _>=_ _==_ _!=_ _&&_ _||_ !_ _?_:_ math.@max math.@min exp";

const EXP: &str = "exp";

/// CEL environment with operators, `math` and `exp` only: no strings, lists, maps or looping macros.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::default();
    // Both names are new, so adding them succeeds. An equation with a missing one would not be accepted.
    let _ = environment.add_extension(extensions::math);
    let _ = environment.add_overload(EXP, "exp_double", vec![DOUBLE_TYPE], |arguments| {
        let number = arguments.first().and_then(|number| number.downcast_ref::<CelDouble>());
        let number = number.ok_or_else(|| ExecutionError::no_such_overload(EXP, vec![]))?;
        Ok(CowVal::owned(CelDouble::from(number.inner().exp())))
    });
    Arc::new(environment)
});

/// An equation that can be evaluated.
#[derive(Debug)]
pub struct Equation {
    expression: IdedExpr,
    /// Names of the metrics, with the prefix, in the order of their declaration.
    names: Vec<String>,
}

impl Equation {
    /// Parses an equation over these metrics.
    ///
    /// # Errors
    /// The text describes the fault and what to write instead.
    pub fn parse(text: &str, metrics: &[&str]) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("is longer than {MAX_BYTES} bytes"));
        }
        let is_operator = |byte: &u8| b"+-*/%<>=!&|?[".contains(byte);
        if text.bytes().filter(is_operator).count() > MAX_OPERATORS {
            return Err(format!("has more than {MAX_OPERATORS} characters of operators"));
        }
        if text.contains('^') {
            return Err("`^` is no operator: write x * x for a square".to_owned());
        }
        let parser = ENVIRONMENT.parser().max_recursion_depth(MAX_DEPTH);
        let expression = parser.parse(text).map_err(|errors| {
            let errors = errors.to_string();
            if errors.contains("Recursion limit") {
                return format!("nests deeper than {MAX_DEPTH} levels");
            }
            format!("is not CEL: {}", errors.lines().next().unwrap_or_default())
        })?;
        let names: Vec<String> = metrics.iter().map(|metric| format!("{PREFIX}{metric}")).collect();
        check(&expression, &names)?;
        let used = expression.references();
        if !names.iter().any(|name| used.has_variable(name)) {
            return Err(format!("names no metric; there are {}", names.join(", ")));
        }
        let equation = Self { expression, names };
        equation.try_out()?;
        Ok(equation)
    }

    /// Evaluates the equation for each row of `values`. A row has one number per metric, in the order of the metrics. A
    /// result that is not a finite number is `None`. Cost: less than a microsecond per row, and some to begin with.
    pub fn evaluate<'v>(&self, values: impl IntoIterator<Item = &'v [f64]>) -> Vec<Option<f64>> {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        let finite = |values| match self.resolve(&mut context, values) {
            Ok(Value::Float(number)) if number.is_finite() => Some(number),
            _ => None,
        };
        values.into_iter().map(finite).collect()
    }

    fn resolve(&self, context: &mut Context<'_, '_>, values: &[f64]) -> Result<Value, ExecutionError> {
        for (name, value) in self.names.iter().zip(values) {
            context.add_variable_from_value(name.clone(), *value);
        }
        Value::resolve(&self.expression, context)
    }

    /// Evaluates the equation with all metrics at 0, at 0.5 and at 1. Then evaluates it with each metric at 0 and at 1,
    /// and the others at 0.5. Only evaluation finds type errors, in the branches that these values reach.
    fn try_out(&self) -> Result<(), String> {
        let mut points: Vec<Vec<f64>> = [0.0, 0.5, 1.0].map(|all| vec![all; self.names.len()]).into();
        for (at, extreme) in (0..self.names.len()).flat_map(|at| [(at, 0.0), (at, 1.0)]) {
            let mut point = vec![0.5; self.names.len()];
            point[at] = extreme;
            points.push(point);
        }
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        let mut is_finite = false;
        for point in &points {
            match self.resolve(&mut context, point) {
                Ok(Value::Float(number)) => is_finite |= number.is_finite(),
                Ok(Value::Bool(_)) => return Err("gives true or false: write condition ? 1.0 : 0.0".to_owned()),
                Ok(_) => return Err("gives no number".to_owned()),
                Err(error) => return Err(format!("cannot be evaluated: {error}")),
            }
        }
        let fault = "gives no finite number, whatever the metrics are";
        is_finite.then_some(()).ok_or_else(|| fault.to_owned())
    }
}

fn is_allowed(function: &str) -> bool {
    FUNCTIONS.split(' ').any(|allowed| allowed == function)
}

/// Checks that the whole expression consists of allowed parts, including branches that no trial evaluates.
fn check(expression: &IdedExpr, names: &[String]) -> Result<(), String> {
    match &expression.expr {
        Expr::Ident(name) if names.contains(name) => Ok(()),
        Expr::Ident(name) if names.contains(&format!("{PREFIX}{name}")) => {
            Err(format!("{name} is not declared: write {PREFIX}{name}"))
        }
        Expr::Ident(name) => Err(format!("{name} is not declared; there are {}", names.join(", "))),
        Expr::Literal(LiteralValue::Double(_) | LiteralValue::Boolean(_)) => Ok(()),
        Expr::Literal(LiteralValue::Int(number)) => {
            let number = number.inner();
            Err(format!(
                "{number} is a whole number, which CEL does not mix with others: write {number}.0"
            ))
        }
        Expr::Call(call) if call.target.is_some() || !is_allowed(&call.func_name) => {
            Err(format!("{} is not allowed; there are {ALLOWED}", call.func_name))
        }
        Expr::Call(call) if call.func_name == EXP && call.args.len() != 1 => Err(format!("{EXP} takes 1 argument")),
        Expr::Call(call) => {
            // `math.greatest` and `math.least` of more than two numbers have a list as their argument.
            let arguments = match &call.args[..] {
                [
                    IdedExpr {
                        expr: Expr::List(list), ..
                    },
                ] if call.func_name.starts_with("math.") => &list.elements,
                arguments => arguments,
            };
            arguments.iter().try_for_each(|argument| check(argument, names))
        }
        _ => Err(format!("is made of more than numbers; there are {ALLOWED}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(text: &str, values: &[f64]) -> Option<f64> {
        Equation::parse(text, &["a", "b"]).unwrap().evaluate([values])[0]
    }

    #[test]
    fn equation_evaluates_supported_operators() {
        for (text, values, expected) in [
            ("cm_normalized_a * cm_normalized_b", [0.5, 0.5], 0.25),
            ("0.7 * cm_normalized_a + 0.3 * (1.0 - cm_normalized_b)", [1.0, 0.0], 1.0),
            ("cm_normalized_a > 0.5 ? cm_normalized_b : -1.0", [0.6, 0.2], 0.2),
            ("math.greatest(cm_normalized_a, cm_normalized_b)", [0.6, 0.2], 0.6),
            ("math.least(cm_normalized_a, cm_normalized_b, 0.1)", [0.6, 0.2], 0.1),
            ("exp(cm_normalized_a) - 1.0", [0.0, 0.0], 0.0),
            (
                "cm_normalized_a == 0.0 || cm_normalized_b >= 1.0 ? 2.0 : 3.0",
                [0.0, 0.0],
                2.0,
            ),
        ] {
            assert_eq!(evaluated(text, &values), Some(expected), "{text}");
        }
    }

    #[test]
    fn equation_without_finite_result_is_no_score() {
        assert_eq!(evaluated("1.0 / cm_normalized_a", &[0.0, 0.0]), None);
        assert_eq!(evaluated("0.0 / cm_normalized_a", &[0.0, 0.0]), None);
        assert_eq!(evaluated("1.0 / cm_normalized_a", &[0.5, 0.0]), Some(2.0));
    }

    const FAULTS: &str = "
2 * cm_normalized_a -> 2 is a whole number, which CEL does not mix with others: write 2.0
a * 2.0 -> a is not declared: write cm_normalized_a
cm_normalized_c -> cm_normalized_c is not declared; there are cm_normalized_a, cm_normalized_b
true ? cm_normalized_a : nope -> nope is not declared; there are cm_normalized_a, cm_normalized_b
cm_normalized_a ^ 2.0 -> `^` is no operator: write x * x for a square
cm_normalized_a > 0.5 -> gives true or false: write condition ? 1.0 : 0.0
1.0 -> names no metric; there are cm_normalized_a, cm_normalized_b
cm_normalized_a / 0.0 -> gives no finite number, whatever the metrics are
cm_normalized_a % 2.0 -> _%_ is not allowed; there are ALLOWED
size(cm_normalized_a) -> size is not allowed; there are ALLOWED
math.sqrt(cm_normalized_a) -> sqrt is not allowed; there are ALLOWED
[cm_normalized_a][0] -> _[_] is not allowed; there are ALLOWED
{'x': cm_normalized_a} -> is made of more than numbers; there are ALLOWED
cm_normalized_a + 'x' -> is made of more than numbers; there are ALLOWED
exp(cm_normalized_a, cm_normalized_b) -> exp takes 1 argument
cm_normalized_a ? 1.0 : 0.0 -> cannot be evaluated: Unexpected type: got 'double', want 'bool'
";

    #[test]
    fn equation_faults_name_the_allowed_form() {
        let allowed = "+ - * /, comparisons, && || !, ? :, math.greatest, math.least and exp";
        for line in FAULTS.trim().lines() {
            let (text, fault) = line.split_once(" -> ").unwrap();
            let found = Equation::parse(text, &["a", "b"]).err();
            assert_eq!(found, Some(fault.replace("ALLOWED", allowed)), "{text}");
        }
        let broken = Equation::parse("cm_normalized_a +", &["a"]).unwrap_err();
        assert!(broken.starts_with("is not CEL: "), "{broken}");
        let long = format!("cm_normalized_a{}", " + 1.0".repeat(200));
        assert_eq!(Equation::parse(&long, &["a"]).unwrap_err(), "is longer than 1024 bytes");
        let nested = |levels| format!("{}cm_normalized_a{}", "(".repeat(levels), ")".repeat(levels));
        assert!(Equation::parse(&nested(16), &["a"]).is_ok());
        for deep in [nested(17), "cm_normalized_a > 0.0 ? 1.0 : ".repeat(20) + "0.0"] {
            assert_eq!(
                Equation::parse(&deep, &["a"]).unwrap_err(),
                "nests deeper than 16 levels"
            );
        }
        let chain = |operators| format!("cm_normalized_a{}", " + 1.0".repeat(operators));
        assert!(Equation::parse(&chain(128), &["a"]).is_ok());
        let many = "has more than 128 characters of operators";
        assert_eq!(Equation::parse(&chain(129), &["a"]).unwrap_err(), many);
    }
}
